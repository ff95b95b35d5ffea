// Offsets for blocks that may share addresses when they do not live at the same time.
#pragma once

#include <cstdint>
#include <vector>

namespace sentinel::plan {

constexpr std::uint64_t kAlignment = 64;  // a cache line: for speed, never for correctness

struct Block {
  std::uint64_t bytes = 0;
  std::uint32_t first = 0, last = 0;  // inclusive
  std::uint64_t offset = 0;           // the answer
};

// Best fit, largest first: each block goes into the tightest hole left by the blocks that live at
// the same time. Returns the height. Quadratic in the number of blocks, with a small constant.
std::uint64_t pack(std::vector<Block>& blocks);

}  // namespace sentinel::plan
