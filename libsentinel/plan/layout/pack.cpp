// Packs items by best fit, the largest first.
#include "plan/layout/pack.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <queue>
#include <span>
#include <utility>

#include "base/units.h"

namespace sentinel::plan {
namespace {

std::uint64_t room(const PackedItem& b) { return round_up(b.bytes, kAlignment); }

bool together(const PackedItem& a, const PackedItem& b) {
  return a.first <= b.last && b.first <= a.last;
}

// `placed` is sorted by offset.
std::uint64_t best_hole(const PackedItem& block, const std::vector<PackedItem>& placed) {
  std::uint64_t top = 0, best = 0;
  std::uint64_t best_size = std::numeric_limits<std::uint64_t>::max();
  for (const PackedItem& other : placed) {
    if (!together(block, other)) continue;
    if (other.offset > top && other.offset - top >= room(block) && other.offset - top < best_size) {
      best = top;
      best_size = other.offset - top;
    }
    top = std::max(top, other.offset + room(other));
  }
  return best_size == std::numeric_limits<std::uint64_t>::max() ? top : best;
}

// Quadratic.
std::uint64_t fit(std::vector<PackedItem>& blocks, std::span<const std::size_t> order) {
  std::vector<PackedItem> placed;
  placed.reserve(order.size());
  std::uint64_t height = 0;
  for (std::size_t i : order) {
    PackedItem& block = blocks[i];
    block.offset = best_hole(block, placed);
    height = std::max(height, block.offset + room(block));
    const auto at = std::upper_bound(
        placed.begin(), placed.end(), block.offset,
        [](std::uint64_t offset, const PackedItem& other) { return offset < other.offset; });
    placed.insert(at, block);
  }
  return height;
}

// Bytes of the column for a block: exact up to 4 KiB, at most an eighth more above.
std::uint64_t column_bytes(const PackedItem& block) {
  constexpr std::uint64_t kExact = 4096;
  const auto bytes = room(block);
  return bytes <= kExact ? bytes : round_up(bytes, std::bit_floor(bytes) / 8);
}

// As few columns as blocks live at once: each block, in the order of their beginnings, takes the
// column that has been free the longest.
std::uint64_t stack_columns(std::vector<PackedItem>& blocks, std::span<std::size_t> alike,
                            std::uint64_t bytes, std::uint64_t base) {
  std::ranges::stable_sort(alike, {}, [&](std::size_t i) { return blocks[i].first; });
  using End = std::pair<std::uint32_t, std::uint64_t>;  // the last op of a column, its offset
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;
  for (const std::size_t i : alike) {
    PackedItem& block = blocks[i];
    if (!ends.empty() && ends.top().first < block.first) {
      block.offset = ends.top().second;
      ends.pop();
    } else {
      block.offset = base;
      base += bytes;
    }
    ends.emplace(block.last, block.offset);
  }
  return base;
}

// `order` is by size, so that blocks of one column size follow one another. O(n log n).
std::uint64_t stack_all(std::vector<PackedItem>& blocks, std::span<std::size_t> order,
                        std::uint64_t base) {
  while (!order.empty()) {
    const auto bytes = column_bytes(blocks[order.front()]);
    const auto end = std::ranges::find_if(
        order, [&](std::size_t i) { return column_bytes(blocks[i]) != bytes; });
    const auto count = static_cast<std::size_t>(end - order.begin());
    base = stack_columns(blocks, order.first(count), bytes, base);
    order = order.subspan(count);
  }
  return base;
}

}  // namespace

std::uint64_t pack(std::vector<PackedItem>& blocks) {
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return blocks[a].bytes != blocks[b].bytes ? blocks[a].bytes > blocks[b].bytes
                                              : blocks[a].first < blocks[b].first;
  });
  const auto fitted = std::min(order.size(), kMostFitted);
  const std::span all(order);
  const auto height = fit(blocks, all.first(fitted));
  return stack_all(blocks, all.subspan(fitted), height);
}

}  // namespace sentinel::plan
