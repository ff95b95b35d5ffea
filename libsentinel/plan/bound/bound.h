// A lower bound on the step time of any plan for a budget, from a linear program over the step: how
// much of each idle tensor leaves, when its bytes cross which link, and by how much ops have to
// wait for that. Generous wherever a plan could be cleverer than the program knows: tensors are
// divisible, transfers fluid, capacity holds at one instant a bucket. What it leaves out and why it
// is a bound is in docs/design/bound.md.
//
// Its solution, gap by gap, is where the planner `auto` starts from.
#pragma once

#include "plan/bound/answer.h"
#include "sentinel/machine.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

// Pure; deterministic while the time limit does not cut. A slower tier that ops can use in place
// bounds nothing: the answer is the sum of op times; so it is, not exact, where the solver is not
// installed.
Bound lower_bound(const Profile&, const Machine&, const BoundOptions&);

}  // namespace sentinel::plan
