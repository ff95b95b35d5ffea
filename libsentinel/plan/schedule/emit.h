// A schedule as a plan's moves, with what is left in a byte-addressable slower tier.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule/fates.h"
#include "plan/schedule/issue.h"

namespace sentinel::plan {

struct Emission {
  const ScheduleInput& in;
  const Schedule& schedule;
  const IssueLists& lists;
  const std::vector<std::uint32_t>& tiers;  // per storage
};

// Fills Plan::moves, streamed_ops, in_place and births.
void emit(Plan&, const Emission&, const Fates&);

// The storage never enters fast memory: all of its uses are in place. Added to in_place and births,
// which sort_in_place() puts in order.
void emit_slow(Plan&, const Profile&, const Storage&, std::uint32_t tier = 1);
void sort_in_place(Plan&);

}  // namespace sentinel::plan
