#include "sim/caching_allocator.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/units.h"

namespace sentinel::sim {
namespace {

// Segments lie side by side: a small one of 2 MiB, then the large ones.
TEST(CachingAllocator, PoolsRoundingAndSegments) {
  CachingAllocator a;
  EXPECT_EQ(a.allocate(1), 0u);
  EXPECT_EQ(a.allocate(513), 512u);  // rounded to 1024
  EXPECT_EQ(a.allocate(1), 1536u);
  EXPECT_EQ(a.allocate(1_MiB), 2048u);      // still small, and fits the segment
  EXPECT_EQ(a.allocate(1_MiB), 2_MiB);      // a second small segment
  EXPECT_EQ(a.allocate(1_MiB + 1), 4_MiB);  // large: 20 MiB
  EXPECT_EQ(a.allocate(9_MiB), 5_MiB + 512);
  EXPECT_EQ(a.allocate(10_MiB), 24_MiB);  // 9.99 MiB are left: a segment of its own
  EXPECT_EQ(a.allocate(11_MiB), 34_MiB);  // rounded up to 12 MiB
  EXPECT_EQ(a.reserved_bytes(), 46_MiB);
}

// 20 MiB as [3][4][3][2][8 free]: the hole of 4 MiB serves 3.5 MiB whole, since half a MiB is not
// split off; the hole of 3 MiB serves 1.5 MiB and leaves as much.
TEST(CachingAllocator, BestFitSplitsOnlyWhatIsWorthIt) {
  CachingAllocator a;
  const std::uint64_t first = a.allocate(3_MiB), second = a.allocate(4_MiB);
  a.allocate(3_MiB);
  a.allocate(2_MiB);
  a.free(second);
  EXPECT_EQ(a.allocate(3_MiB + 512_KiB), second);
  a.free(first);
  EXPECT_EQ(a.allocate(3_MiB / 2), first);
  EXPECT_EQ(a.allocate(3_MiB / 2), first + 3_MiB / 2);
  EXPECT_EQ(a.allocate(8_MiB), 12_MiB);
  EXPECT_EQ(a.reserved_bytes(), 20_MiB);
}

TEST(CachingAllocator, NeighboursMergeWithinTheirSegmentOnly) {
  CachingAllocator a;
  const std::uint64_t first = a.allocate(10_MiB), second = a.allocate(10_MiB);
  a.free(first);
  a.free(second);
  EXPECT_EQ(a.allocate(20_MiB), 20_MiB);  // two segments of 10 MiB do not make one of 20
  const std::uint64_t left = a.allocate(4_MiB), right = a.allocate(6_MiB);
  EXPECT_EQ(right, left + 4_MiB);
  a.free(left);
  a.free(right);
  EXPECT_EQ(a.allocate(10_MiB), left);
}

TEST(CachingAllocator, AllocationsNeverOverlapAndAllComesBack) {
  std::mt19937_64 random(5);
  CachingAllocator a;
  std::map<std::uint64_t, std::uint64_t> live;  // address, end
  for (int i = 0; i < 20000; ++i) {
    if (live.size() > 60 || (!live.empty() && random() % 2 == 0)) {
      const auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
      a.free(victim->first);
      live.erase(victim);
      continue;
    }
    const std::uint64_t bytes = 1 + random() % (1ull << (9 + random() % 17));
    const std::uint64_t at = a.allocate(bytes);
    ASSERT_EQ(at % 512, 0u);
    const auto after = live.lower_bound(at);
    ASSERT_TRUE(after == live.end() || at + bytes <= after->first);
    ASSERT_TRUE(after == live.begin() || std::prev(after)->second <= at);
    ASSERT_LE(at + bytes, a.reserved_bytes());
    live[at] = at + bytes;
  }
  for (const auto& [at, end] : live) a.free(at);
  const std::uint64_t reserved = a.reserved_bytes();
  a.allocate(10_MiB);  // the largest requests had segments of at least 20 MiB in common
  EXPECT_EQ(a.reserved_bytes(), reserved);
}

}  // namespace
}  // namespace sentinel::sim
