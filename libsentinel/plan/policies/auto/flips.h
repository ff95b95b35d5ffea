// Small changes to a plan where its time goes.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "plan/gaps/scheduled.h"
#include "plan/policies/auto/facts.h"

namespace sentinel::plan {

struct Candidate {
  std::vector<Decision> decisions;
  Plan plan;
  Verdict verdict{.step_us = Facts::kNever};
  bool paced = false;   // planned with a Pace
  bool copies = false;  // what leaves is copied ahead
  ReplayWay way;        // on frames
};

class Flips {
 public:
  Flips(const Facts& facts, std::uint64_t seed) : facts_(facts), random_(seed) {}

  // The candidate's decisions with some of them changed.
  std::vector<Decision> operator()(const Candidate&);

 private:
  using Decisions = std::map<std::pair<std::uint32_t, std::uint32_t>, Decision>;  // storage, use
  void fewer_replays(const Candidate&, double replays_us, Decisions&);
  void relieve(std::uint32_t stalled, Decisions&);
  std::uint32_t stalled_op(const std::vector<double>& stalls);

  const Facts& facts_;
  std::mt19937_64 random_;
};

}  // namespace sentinel::plan
