// The lower bounds that stand beside the trials of policies: computed once for each scenario.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "planning/simulation.h"

namespace sentinel::cli {

class Bounds {
 public:
  // Sets the trial's bounds for its own budget. `variant` names what of the scenario a sweep
  // varies. Where the policy is not held to the budget (ideal), the sum of op times bounds it.
  void set(const Scenario&, const std::string& variant, PolicyTrial&);

 private:
  struct Pair {
    double swap_us, any_us;
  };
  std::map<std::pair<std::string, std::uint64_t>, Pair> known_;
};

}  // namespace sentinel::cli
