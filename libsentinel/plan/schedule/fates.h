// What becomes of a schedule's gaps on a byte-addressable slower tier, where not everything that
// leaves has to come back.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule/schedule.h"

namespace sentinel::plan {

enum class Fate : std::uint8_t {
  move,   // out and in, as scheduled
  leave,  // not promoted: used in the slower tier until the next promotion that is made
  keep    // stays in fast memory after all
};
using Fates = std::vector<Fate>;  // per gap of the schedule

// Per gap: the storage is away already when it begins, since an earlier gap was left.
std::vector<bool> stays_away(const ScheduleInput&, const Schedule&, const Fates&);

// The last position, inclusive, at which a storage whose gap was left is used in place.
std::uint32_t away_until(const ScheduleInput&, const Schedule&, std::uint32_t gap);

// Room that the left ones make lets others stay: gaps to be moved become kept, the shortest first.
void keep_what_fits(const ScheduleInput&, const Schedule&, Fates&);

}  // namespace sentinel::plan
