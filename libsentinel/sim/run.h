// One entry for every kind of policy: plans, prepares, replays.
#pragma once

#include <optional>

#include "sentinel/policy.h"
#include "sim/simulator.h"

namespace sentinel::sim {

struct Run {
  SimResult result;
  std::optional<Plan> plan;  // of a planned policy
  double plan_ms = 0;        // that it took to plan or to prepare
};

// Of SimOptions, `fast_bytes` is taken from PlanOptions; where PlanOptions::judge is empty, a
// planner is given the simulator's own. Throws Error where the policy, the budget or the machine
// cannot work, and what a policy throws.
Run run(Policy&, const Profile&, const Machine&, PlanOptions, SimOptions = {});

}  // namespace sentinel::sim
