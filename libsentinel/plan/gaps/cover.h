// Which idle gaps leave so that what is held never exceeds a limit, at least cost.
//
// With equal costs a byte, the rule that takes the gap of the farthest next use among those open
// where the limit is first exceeded moves the fewest bytes (Belady; optimal for parts of equal
// size). With unequal costs the gap is taken that costs least for each op at which it helps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/gaps/decisions.h"

namespace sentinel::plan {

struct CoverInput {
  std::span<const IdleGap> gaps;
  std::span<const std::uint64_t> held;  // per op, everything alive
  std::uint64_t limit = 0;
  // Cost of a byte of each gap; empty: all alike.
  std::span<const double> cost;
};

// Indices of the gaps to evict, ascending. What cannot be covered stays uncovered.
// O((gaps + ops) log gaps).
std::vector<std::uint32_t> cover(const CoverInput&);

}  // namespace sentinel::plan
