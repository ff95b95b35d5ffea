// Offsets for blocks that may share addresses when they do not live at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sentinel::plan {

constexpr std::uint64_t kAlignment = 64;  // a cache line: for speed, never for correctness

struct PackedItem {
  std::uint64_t bytes = 0;
  std::uint32_t first = 0, last = 0;  // inclusive
  std::uint64_t offset = 0;           // the answer
};

// The largest blocks go by best fit, largest first: each into the tightest hole left by the blocks
// that live at the same time. All others lie above them, in columns of one size each. Returns the
// height. O(n log n), with a constant for the square of the blocks that are fitted.
constexpr std::size_t kMostFitted = 16'384;
std::uint64_t pack(std::vector<PackedItem>& blocks);

}  // namespace sentinel::plan
