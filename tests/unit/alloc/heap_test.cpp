#include "alloc/heap.h"

#include <gmock/gmock.h>

#include <map>
#include <random>
#include <vector>

#include "base/units.h"

namespace sentinel {
namespace {

using ::testing::Each;
using ::testing::Ne;

constexpr std::uintptr_t kBegin = 1_GiB;

TEST(HeapTest, HandsOutTheWholeRangeAndTakesItBack) {
  Heap heap(kBegin, 1_MiB);
  std::vector<std::uintptr_t> all;
  for (int i = 0; i < 16; ++i) all.push_back(heap.allocate(64_KiB, 64));
  EXPECT_THAT(all, Each(Ne(0u)));
  EXPECT_EQ(heap.allocate(1, 64), 0u);
  EXPECT_EQ(heap.in_use(), 1_MiB);
  for (const auto address : all) heap.free(address, 64_KiB);
  EXPECT_EQ(heap.in_use(), 0u);
  EXPECT_EQ(heap.allocate(1_MiB, 64), kBegin);
  EXPECT_TRUE(heap.valid());
}

TEST(HeapTest, RoundsUpToCacheLines) {
  Heap heap(kBegin, 1_MiB);
  const auto first = heap.allocate(1, 64), second = heap.allocate(65, 64),
             third = heap.allocate(1, 64);
  EXPECT_EQ(second - first, 64u);
  EXPECT_EQ(third - second, 128u);
  EXPECT_EQ(heap.in_use(), 256u);
}

TEST(HeapTest, TakesTheSmallestRangeThatFits) {
  Heap heap(kBegin, 1_MiB);
  const auto large = heap.allocate(256_KiB, 64);
  heap.allocate(64, 64);  // keeps the two apart
  const auto small = heap.allocate(64_KiB, 64);
  heap.allocate(64, 64);
  heap.free(large, 256_KiB);
  heap.free(small, 64_KiB);
  EXPECT_EQ(heap.allocate(60_KiB, 64), small);
  EXPECT_EQ(heap.allocate(100_KiB, 64), large);
}

TEST(HeapTest, CoalescesWithBothNeighbours) {
  Heap heap(kBegin, 192_KiB);
  const auto a = heap.allocate(64_KiB, 64), b = heap.allocate(64_KiB, 64),
             c = heap.allocate(64_KiB, 64);
  heap.free(a, 64_KiB);
  heap.free(c, 64_KiB);
  EXPECT_EQ(heap.allocate(128_KiB, 64), 0u);
  heap.free(b, 64_KiB);
  EXPECT_EQ(heap.allocate(192_KiB, 64), kBegin);
}

TEST(HeapTest, AlignsWithoutLosingWhatLiesBefore) {
  Heap heap(kBegin + 64, 8_MiB);
  const auto aligned = heap.allocate(2_MiB, 2_MiB);
  EXPECT_EQ(aligned % 2_MiB, 0u);
  EXPECT_TRUE(heap.valid());
  EXPECT_LT(heap.allocate(64_KiB, 64), aligned);  // the best fit is the gap before it
}

TEST(HeapTest, ALargeEnoughRangeThatCannotBeAlignedIsPassedOver) {
  Heap heap(kBegin + 64, 4_MiB);  // 2 MiB fit twice, aligned only once
  EXPECT_NE(heap.allocate(2_MiB, 2_MiB), 0u);
  EXPECT_EQ(heap.allocate(2_MiB, 2_MiB), 0u);
  EXPECT_TRUE(heap.valid());
}

TEST(NaturalAlignmentTest, WholeGranulesOnlyWhereLittleIsLost) {
  EXPECT_EQ(natural_alignment(2_MiB, 2_MiB), 2_MiB);
  EXPECT_EQ(natural_alignment(2_MiB + 1, 2_MiB), 4096u);
  EXPECT_EQ(natural_alignment(15_MiB, 2_MiB), 2_MiB);  // a fifteenth lost
  EXPECT_EQ(natural_alignment(1_MiB, 2_MiB), 4096u);
  EXPECT_EQ(natural_alignment(4096, 2_MiB), 4096u);
  EXPECT_EQ(natural_alignment(4095, 2_MiB), 64u);
}

// The reference: which lines are in use, one by one.
class Lines {
 public:
  explicit Lines(std::uint64_t bytes) : used_(bytes / 64) {}

  bool take(std::uint64_t offset, std::uint64_t bytes) { return change(offset, bytes, true); }
  bool give(std::uint64_t offset, std::uint64_t bytes) { return change(offset, bytes, false); }
  bool has_room(std::uint64_t bytes, std::uint64_t alignment) const {
    const auto lines = round_up(bytes, 64) / 64;
    for (std::uint64_t at = 0; at + lines <= used_.size(); at += alignment / 64) {
      std::uint64_t n = 0;
      while (n < lines && !used_[at + n]) ++n;
      if (n == lines) return true;
    }
    return false;
  }

 private:
  bool change(std::uint64_t offset, std::uint64_t bytes, bool to) {
    const auto end = (offset + round_up(bytes, 64)) / 64;
    if (offset % 64 != 0 || end > used_.size()) return false;
    for (auto line = offset / 64; line < end; ++line) {
      if (used_[line] == to) return false;
      used_[line] = to;
    }
    return true;
  }

  std::vector<bool> used_;
};

class RandomHeapTest : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomHeapTest, ::testing::Range(1u, 6u));

// Never two tensors on one line, aligned as asked, refused only where there is no room.
TEST_P(RandomHeapTest, AgreesWithTheReference) {
  constexpr std::uint64_t kRange = 1_MiB;
  std::mt19937 random(GetParam());
  Heap heap(kBegin, kRange);
  Lines lines(kRange);
  std::vector<std::pair<std::uintptr_t, std::uint64_t>> live;
  for (int i = 0; i < 4000; ++i) {
    if (live.empty() || random() % 100 < 55) {
      const std::uint64_t bytes = 1 + random() % (random() % 4 == 0 ? 128_KiB : 4_KiB);
      const std::uint64_t alignment = 64ull << (random() % 9);
      const auto address = heap.allocate(bytes, alignment);
      if (address == 0) {
        ASSERT_FALSE(lines.has_room(bytes, alignment)) << bytes << " at " << alignment;
        continue;
      }
      ASSERT_EQ(address % alignment, 0u);
      ASSERT_TRUE(lines.take(address - kBegin, bytes));
      live.emplace_back(address, bytes);
    } else {
      std::swap(live[random() % live.size()], live.back());
      const auto [address, bytes] = live.back();
      live.pop_back();
      heap.free(address, bytes);
      ASSERT_TRUE(lines.give(address - kBegin, bytes));
    }
    ASSERT_TRUE(heap.valid()) << i;
  }
  for (const auto& [address, bytes] : live) heap.free(address, bytes);
  EXPECT_EQ(heap.allocate(kRange, 64), kBegin);
}

}  // namespace
}  // namespace sentinel
