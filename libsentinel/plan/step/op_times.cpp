// Averages measured op times, and fits a linear model of their logarithms.
#include "plan/step/op_times.h"

#include <algorithm>
#include <cmath>

namespace sentinel::plan {
namespace {

constexpr std::uint32_t kFewest = 6;  // samples, twice the coefficients
constexpr double kRidge = 1e-6;       // keeps the equations solvable where a term never varies

double bytes_of(const Profile& profile, const std::vector<TensorId>& tensors) {
  double sum = 0;
  for (TensorId t : tensors) sum += static_cast<double>(profile.tensors[t.index()].bytes);
  return sum;
}

}  // namespace

void AveragedTimes::measured(std::span<const double> op_us) {
  if (op_us.size() != us_.size()) return;
  for (std::size_t k = 0; k < us_.size(); ++k) us_[k] = kBeta * us_[k] + (1 - kBeta) * op_us[k];
}

void AveragedTimes::scale(double factor) {
  for (double& us : us_) us *= factor;
}

double AveragedTimes::drift() const {
  double off = 0, all = 0;
  for (std::size_t k = 0; k < us_.size(); ++k) {
    off += std::abs(us_[k] - planned_[k]);
    all += planned_[k];
  }
  return all > 0 ? off / all : off > 0 ? 1 : 0;
}

void TimePredictor::Fit::add(const Terms& x, double ln_us) {
  for (std::size_t i = 0; i < kTerms; ++i) {
    for (std::size_t j = 0; j < kTerms; ++j) matrix[i][j] += x[i] * x[j];
    right[i] += x[i] * ln_us;
  }
  least = samples == 0 ? ln_us : std::min(least, ln_us);
  most = samples == 0 ? ln_us : std::max(most, ln_us);
  ++samples;
}

// Gaussian elimination; the matrix is positive definite with the ridge added.
double TimePredictor::Fit::at(const Terms& x) const {
  auto a = matrix;
  auto c = right;
  for (std::size_t i = 0; i < kTerms; ++i) a[i][i] += kRidge * samples;
  for (std::size_t i = 0; i < kTerms; ++i)
    for (std::size_t row = i + 1; row < kTerms; ++row) {
      const double factor = a[row][i] / a[i][i];
      for (std::size_t j = i; j < kTerms; ++j) a[row][j] -= factor * a[i][j];
      c[row] -= factor * c[i];
    }
  double ln_us = 0;
  for (std::size_t i = kTerms; i-- > 0;) {
    for (std::size_t j = i + 1; j < kTerms; ++j) c[i] -= a[i][j] * c[j];
    c[i] /= a[i][i];
    ln_us += c[i] * x[i];
  }
  return std::clamp(ln_us, least, most);
}

TimePredictor::Terms TimePredictor::terms(const Profile& profile, const Op& op) {
  return {1, std::log1p(bytes_of(profile, op.in)), std::log1p(bytes_of(profile, op.out))};
}

void TimePredictor::learn(const Profile& profile) {
  for (const Op& op : profile.ops) {
    if (op.us <= 0) continue;
    const Terms x = terms(profile, op);
    by_name_[op.name].add(x, std::log(op.us));
    all_.add(x, std::log(op.us));
  }
}

double TimePredictor::us(const Profile& profile, const Op& op, const Machine& machine) const {
  const Terms x = terms(profile, op);
  const auto named = by_name_.find(op.name);
  if (named != by_name_.end() && named->second.samples >= kFewest)
    return std::exp(named->second.at(x));
  if (all_.samples >= kFewest) return std::exp(all_.at(x));
  const double bw = machine.tiers.front().read_bw;
  const double bytes = bytes_of(profile, op.in) + bytes_of(profile, op.out);
  return bw > 0 ? bytes / bw * 1e6 : 0;
}

bool timed(const Profile& profile) {
  return std::ranges::any_of(profile.ops, [](const Op& op) { return op.us > 0; });
}

}  // namespace sentinel::plan
