// A schedule as what is issued at each op, in order, and how long a step takes with it.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule/schedule.h"
#include "sentinel/machine.h"

namespace sentinel::plan {

struct IssueLists {                                 // per op, indices into Schedule::gaps
  std::vector<std::vector<std::uint32_t>> promote;  // at its start
  std::vector<std::vector<std::uint32_t>> demote;   // at its end
};

// Promotions that start together go in order of need. Where an op can use what has not arrived
// (`in_place`), something may be left behind for good, and the most accessed tensors of an interval
// go first (paper, IV-D); elsewhere everything has to arrive, and what is needed first goes first.
IssueLists issue_lists(const ScheduleInput&, const Schedule&, const Intervals&, bool in_place);

// Per gap: the storage was not written since it was last promoted, so the slow tier still holds its
// bytes and the demotion moves nothing.
std::vector<bool> clean_gaps(const ScheduleInput&, const Schedule&, const Writes&, bool exclusive);

struct TierRates {  // bytes per microsecond, per tier of the machine; [0] is not used
  std::vector<double> in, out;
};
TierRates tier_rates(const Machine&);

// The tier that a gap is spent in: the one it was given, or its storage's.
inline std::uint32_t tier_of(const Gap& gap, const std::vector<std::uint32_t>& tiers) {
  return gap.tier != 0 ? gap.tier : tiers[gap.storage];
}

// Which slower tier takes each storage: the fastest, as far as it has room at every op. Where it
// has not, storages are dealt out in the order in which they leave, in proportion to the tiers'
// shares, so that the slower tier works all the time instead of in bursts. One tier for all of a
// storage's moves: a clean copy there stays of use.
std::vector<std::uint32_t> choose_tiers(const ScheduleInput&, const Schedule&, const Machine&);

// Step time with one queue each way and tier, in the steady state: an op waits for what it needs,
// and for unfinished writes where their space is needed. `tiers` is per storage, for gaps that were
// given none.
double predicted_step_us(const ScheduleInput&, const Schedule&, const IssueLists&,
                         const std::vector<bool>& clean, const std::vector<std::uint32_t>& tiers,
                         const TierRates&);

}  // namespace sentinel::plan
