#include "plan/layout/pack.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>

#include "base/units.h"

namespace sentinel::plan {
namespace {

// Walks over the ops with the addresses in use. Answers the most bytes that were alive at once.
std::uint64_t peak_without_overlap(const std::vector<PackedItem>& blocks, std::uint64_t height) {
  std::vector<std::pair<std::pair<std::uint32_t, bool>, std::size_t>> events;  // ends last
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    events.push_back({{blocks[i].first, false}, i});
    events.push_back({{blocks[i].last, true}, i});
  }
  std::ranges::sort(events);
  std::map<std::uint64_t, std::uint64_t> used;  // begin to end
  std::uint64_t now = 0, peak = 0;
  for (const auto& [when, i] : events) {
    const auto& b = blocks[i];
    if (when.second) {
      now -= b.bytes;
      used.erase(b.offset);
      continue;
    }
    peak = std::max(peak, now += b.bytes);
    EXPECT_LE(b.offset + b.bytes, height);
    const auto after = used.lower_bound(b.offset);
    if (after != used.end()) EXPECT_GE(after->first, b.offset + b.bytes);
    if (after != used.begin()) EXPECT_LE(std::prev(after)->second, b.offset);
    used[b.offset] = b.offset + b.bytes;
  }
  return peak;
}

std::vector<PackedItem> random_blocks(std::size_t count, std::uint64_t largest,
                                      std::uint32_t longest) {
  std::mt19937_64 random(7);
  std::vector<PackedItem> blocks;
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = static_cast<std::uint32_t>(random() % count);
    blocks.push_back(
        {1 + random() % largest, first, first + static_cast<std::uint32_t>(random() % longest)});
  }
  return blocks;
}

TEST(Pack, ManyBlocksOverlapNowhere) {
  for (const std::uint64_t largest : {std::uint64_t{64}, 4_KiB, 1_MiB}) {
    auto blocks = random_blocks(3 * kMostFitted, largest, 50);
    const auto height = pack(blocks);
    peak_without_overlap(blocks, height);
    for (const auto& b : blocks) ASSERT_EQ(b.offset % kAlignment, 0u);
  }
}

// Many of few sizes, as updates of small parameters make them: no more than is alive at once.
TEST(Pack, BlocksOfOneSizeTakeNoMoreThanTheirPeak) {
  auto blocks = random_blocks(5 * kMostFitted, 1, 3);
  for (auto& b : blocks) b.bytes = kAlignment;
  const auto height = pack(blocks);
  EXPECT_LE(height, 2 * peak_without_overlap(blocks, height));
}

TEST(Pack, GrowsWithTheNumberOfBlocksNotItsSquare) {
  auto blocks = random_blocks(1'000'000, 100, 1'000'000);  // half of them live at once
  const auto begin = std::chrono::steady_clock::now();
  pack(blocks);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

}  // namespace
}  // namespace sentinel::plan
