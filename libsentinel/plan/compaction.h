// Tensors smaller than a granule lie together, so that none of them holds a granule by itself: what
// lives within one layer in one area, the rest in another. They never move; their space is reused
// as lifetimes end. Larger tensors and persistent ones, whose addresses are given, are left out.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/storage.h"
#include "sentinel/plan.h"

namespace sentinel::plan {

inline bool below_granule(const Storage& s, std::uint64_t granule_bytes) {
  return s.bytes < granule_bytes;
}

// Fills the plan's placements, groups, region and reserved space. O(n log n).
void compact(Plan&, const Profile&, const std::vector<Storage>&);

}  // namespace sentinel::plan
