#include "plan/layout/pack.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/units.h"

namespace sentinel::plan {
namespace {

std::uint64_t room(const Block& b) { return round_up(b.bytes, kAlignment); }

bool together(const Block& a, const Block& b) { return a.first <= b.last && b.first <= a.last; }

// `placed` is sorted by offset.
std::uint64_t best_hole(const Block& block, const std::vector<Block>& placed) {
  std::uint64_t top = 0, best = 0;
  std::uint64_t best_size = std::numeric_limits<std::uint64_t>::max();
  for (const Block& other : placed) {
    if (!together(block, other)) continue;
    if (other.offset > top && other.offset - top >= room(block) && other.offset - top < best_size) {
      best = top;
      best_size = other.offset - top;
    }
    top = std::max(top, other.offset + room(other));
  }
  return best_size == std::numeric_limits<std::uint64_t>::max() ? top : best;
}

}  // namespace

std::uint64_t pack(std::vector<Block>& blocks) {
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return blocks[a].bytes != blocks[b].bytes ? blocks[a].bytes > blocks[b].bytes
                                              : blocks[a].first < blocks[b].first;
  });
  std::vector<Block> placed;
  placed.reserve(blocks.size());
  std::uint64_t height = 0;
  for (std::size_t i : order) {
    Block& block = blocks[i];
    block.offset = best_hole(block, placed);
    height = std::max(height, block.offset + room(block));
    const auto at = std::upper_bound(
        placed.begin(), placed.end(), block.offset,
        [](std::uint64_t offset, const Block& other) { return offset < other.offset; });
    placed.insert(at, block);
  }
  return height;
}

}  // namespace sentinel::plan
