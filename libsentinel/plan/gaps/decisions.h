// From decisions about idle tensors to a plan that verify() accepts: shared by the policies that
// decide gap by gap (keep, swap to a tier, recompute) and leave the bookkeeping here.
//
// A gap is the idle time of a storage between two uses, cyclic over the step (plan/step/storage.h).
// An evicted gap holds nothing at the positions [out, in). A swap is demoted at the end of `use`
// and holds its space through one further op (the write) unless the next op needs the space; it is
// promoted at the start of `in`, as near to the wanted position as there is room. A recomputed gap
// is discarded at the end of `use` and made again before `next`. What a swap decided ahead would
// write at the end of `use` is copied (Direction::copy) from the end of the op that last wrote it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plan/gaps/idle_gaps.h"
#include "plan/gaps/pace.h"
#include "plan/schedule/basis.h"
#include "plan/step/storage.h"
#include "sentinel/machine.h"
#include "sentinel/plan.h"
#include "sentinel/policy.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

enum class Remedy : std::uint8_t { keep, swap, recompute };

struct Decision {
  std::uint32_t storage = 0, use = 0, next = 0;  // of the gap
  Remedy remedy = Remedy::keep;
  std::uint32_t tier = 1;  // swap: where to
  // swap: wanted trigger position in (use, next]; later if there is no room
  std::uint32_t fetch = 0;
  bool ahead = false;  // swap: copied once it is written for the last time, while the way is idle
  double out_delay_us = 0, in_delay_us = 0;  // after the triggers
};

struct DecidedPlan {
  Plan plan;
  std::vector<std::uint64_t> held;  // per op, replays included
  double recompute_us = 0;
};

// A plan without moves: the budget, and where tensors lie.
Plan bare_plan(std::string_view policy, const Basis&, const PlanOptions&);

// For layouts in which only what never moves shares granules: of others' evictions only what no
// other tensor overlaps counts (plan/gaps/scheduled.h knows shared granules). Throws Error naming
// the op and the bytes that are too many where the decisions do not fit the budget. Recompute
// decisions that turn out illegal become swaps to their tier. With a pace, fetches wait for room
// until what is on its way out has left. O((decisions + uses) log n).
DecidedPlan decided_plan(std::string_view policy, const Basis&, const PlanOptions&,
                         const std::vector<Decision>&, const Pace* pace = nullptr);
DecidedPlan decided_plan(std::string_view policy, const Profile&, const Machine&,
                         const PlanOptions&, const std::vector<Decision>&);

}  // namespace sentinel::plan
