// Tensors smaller than a granule lie together, so that none of them holds a granule by itself: what
// lives within one layer in one area, the rest in another. They never move; their space is reused
// as lifetimes end. Larger tensors and persistent ones, whose addresses are given, are left out.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/layout/layout.h"
#include "plan/step/storage.h"

namespace sentinel::plan {

inline bool below_granule(const Storage& s, std::uint64_t granule_bytes) {
  return s.bytes < granule_bytes;
}

// O(n log n).
Layout compact(const Profile&, const std::vector<Storage>&, std::uint64_t granule_bytes);

}  // namespace sentinel::plan
