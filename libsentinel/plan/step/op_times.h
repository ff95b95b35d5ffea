// How long ops take, for planning: predicted before a job has run, measured and averaged afterwards
// (TENSILE, section 4.3).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "sentinel/machine.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

// The times of one job's ops. What a step measures is averaged in exponentially:
//   new = beta * old + (1 - beta) * measured
// (the paper prints both terms with the same time). The paper names neither beta nor its threshold
// of drift: a half follows a change within a few steps and halves what a single step is off by.
class AveragedTimes {
 public:
  static constexpr double kBeta = 0.5;
  static constexpr double kDrift = 0.1;

  explicit AveragedTimes(std::vector<double> us) : us_(std::move(us)), planned_(us_) {}

  void measured(std::span<const double> op_us);  // one step's; another number of ops is ignored
  void scale(double factor);                     // another number of jobs computes from now on
  // How far the times have gone from those last planned with: sum of differences over their sum.
  double drift() const;
  bool drifted() const { return drift() > kDrift; }
  void plan_made() { planned_ = us_; }
  const std::vector<double>& us() const { return us_; }

 private:
  std::vector<double> us_, planned_;
};

// Predicts what an op takes alone on the machine from ops that were timed. The paper trains a small
// neural network for each kind of operator on sizes, parameters and the GPU's load; here it is a
// linear model of the logarithms, for each op name that was seen often enough and for all ops
// together:  ln us = c0 + c1 ln(1 + bytes read) + c2 ln(1 + bytes written). Load enters outside:
// jobs that compute together share the machine equally.
class TimePredictor {
 public:
  void learn(const Profile&);  // ops without a time teach nothing
  // Nothing learnt: the bytes at fast memory's bandwidth.
  double us(const Profile&, const Op&, const Machine&) const;

 private:
  static constexpr std::size_t kTerms = 3;
  using Terms = std::array<double, kTerms>;
  struct Fit {  // normal equations of least squares
    std::array<Terms, kTerms> matrix{};
    Terms right{};
    std::uint32_t samples = 0;
    double least = 0, most = 0;  // ln us seen: no prediction goes beyond
    void add(const Terms&, double ln_us);
    double at(const Terms&) const;
  };
  static Terms terms(const Profile&, const Op&);

  std::map<std::string, Fit, std::less<>> by_name_;
  Fit all_;
};

bool timed(const Profile&);  // whether any op has a time

}  // namespace sentinel::plan
