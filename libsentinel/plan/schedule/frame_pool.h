// What of a budget is kept free for transfers, and which budgets can work at all, for the planners
// whose plans stream an op that does not fit.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule/schedule.h"
#include "plan/step/storage.h"
#include "sentinel/machine.h"
#include "sentinel/plan.h"
#include "sentinel/policy.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

struct BudgetInput {
  const Profile& profile;
  const Machine& machine;
  const PlanOptions& options;
  const std::vector<Storage>& storages;
  const std::vector<bool>& movable;
  const Demand& demand;
};

// Free frames for transfers. Where an op would have to be streamed for their sake alone they are
// fewer, for all ops: what is under way at once then is less deep.
std::uint64_t frame_pool(const BudgetInput&);
// With which transfers still work: for a plan that has more use for memory than for their depth.
std::uint64_t least_frame_pool(const BudgetInput&);

// Fills smallest_budget, smallest_unstreamed_budget and paper_bound.
void fill_bounds(Plan&, const BudgetInput&);

// Throws Error, naming the bounds, where the plan's budget is below the smallest or the machine has
// no slower tier.
void refuse_too_small(const Plan&, const Machine&);

}  // namespace sentinel::plan
