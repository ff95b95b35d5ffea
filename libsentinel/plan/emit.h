// A schedule as a plan's moves, with what is left in a byte-addressable slower tier.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/issue.h"

namespace sentinel::plan {

struct Emission {
  const Profile& profile;
  const std::vector<Storage>& storages;
  const Schedule& schedule;
  const IssueLists& lists;
  const std::vector<std::uint32_t>& tiers;  // per storage
};

// Fills Plan::moves, streamed_ops, in_place and births. `left`, per gap of the schedule: it is not
// promoted at the gap's end but used in the slower tier until the next promotion that is made.
void emit(Plan&, const Emission&, const std::vector<bool>& left);

// The storage never enters fast memory: all of its uses are in place. Added to in_place and births,
// which are sorted by sort_in_place().
void emit_slow(Plan&, const Profile&, const Storage&, std::uint32_t tier = 1);
void sort_in_place(Plan&);

}  // namespace sentinel::plan
