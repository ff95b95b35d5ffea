// From decisions about idle tensors to a plan where tensors share granules: the way of
// decided_plan() for frames of 2 MiB, in which small tensors lie together.
//
// A shared granule is free only while all that lies in it is away, which is more than the sum of
// what single decisions free; so the decisions are the beginning of a schedule
// (plan/schedule/schedule.h), which adds what is still too much, streams an op that cannot fit, and
// keeps frames for transfers. What is to be made again is discarded in the schedule
// (plan/gaps/remade.h).
#pragma once

#include <string_view>
#include <vector>

#include "plan/gaps/decisions.h"
#include "plan/schedule/basis.h"
#include "sentinel/plan.h"
#include "sentinel/policy.h"

namespace sentinel::plan {

// Whether granules are so large that tensors have to share them.
bool granules_are_shared(const Machine&);

struct ScheduledRules {
  bool early = true;       // promotions as early as there is room; or an op ahead, and given ones
                           // when their decisions say
  std::uint32_t tier = 0;  // where what was not decided goes; 0: chosen by room and rate
};

// Where decisions are to make tensors again, the quickest of several plans by the judge: with
// replays, with moves instead, and with what the schedule adds instead. Replays that are no gain
// are never in it, nor are any where the options forbid them. Throws Error, naming the budgets that
// work, where the budget is below the smallest.
Plan scheduled_plan(std::string_view policy, const Basis&, const PlanOptions&,
                    const std::vector<Decision>&, ScheduledRules);

// One such plan alone, with replays. `keep`: what a replay makes on its way stays where it was
// wanted as well; `deep`: as many frames are kept for transfers as without replays, else the least.
struct ReplayWay {
  bool keep = true, deep = false;
};
Plan replayed_plan(std::string_view policy, const Basis&, const PlanOptions&,
                   const std::vector<Decision>&, ReplayWay);

// The first of those with the least step time: by the judge, if there is one, which is then what
// the plan predicts.
Plan quickest(const Profile&, const Machine&, const PlanOptions&, std::vector<Plan>);

// Where tensors share granules, the pools; elsewhere nothing is placed.
Layout shared_layout(const Profile&, const Machine&, const PlanOptions&);

}  // namespace sentinel::plan
