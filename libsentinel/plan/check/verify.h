// Checks a plan against the profile it is for, without trust in the planner: called by the tests
// and before a plan is executed.
#pragma once

#include <string>
#include <vector>

#include "plan/check/steady_start.h"
#include "sentinel/machine.h"
#include "sentinel/plan.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

// What is wrong with the plan, in words; empty if nothing is. At most twenty entries. Checked:
// - ids, layers and triggers exist, and no number is beyond what a plan can mean, so that no sum of
//   them wraps;
// - groups are granule aligned, disjoint and in the region, each placement lies in its group;
// short- and
//   long-lived tensors and different lifetimes share no granule (paper, IV-B; lifetime_slack());
// - tensors alive at the same time overlap nowhere;
// - in the steady state, with moves in flight counted, no op holds more than fast_bytes;
// - every tensor is in fast memory, or promoted in time, at each op that uses it, streamed ops
//   apart; those would not fit if all else that moves were away; what the plan demotes comes back;
//   what it discards is remade or overwritten whole before it is read;
// - replays are legal (plan/step/replay.h) and what they read is in fast memory;
// - the plan's own totals agree with its parts.
std::vector<std::string> verify(const Plan&, const Profile&);

// Also that the machine has the tiers, and that what is used in place lies in a byte-addressable
// one.
std::vector<std::string> verify(const Plan&, const Profile&, const Machine&);

}  // namespace sentinel::plan
