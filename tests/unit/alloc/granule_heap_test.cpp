// A heap of borrowed granules: what is in them shares none with the lender's tensors.
#include "alloc/granule_heap.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "base/units.h"

namespace sentinel {
namespace {

constexpr std::uintptr_t kBegin = 1_GiB;
constexpr std::uint64_t kGranule = 2_MiB;

TEST(GranuleHeapTest, BorrowsWholeGranulesAndGivesThemBack) {
  Heap lender(kBegin, 8 * kGranule);
  GranuleHeap heap(lender, kGranule);
  const auto lent = lender.allocate(100, 64);
  const auto a = heap.allocate(100, 64), b = heap.allocate(15_KiB, 4096);
  EXPECT_NE(a / kGranule, lent / kGranule);
  EXPECT_EQ(a / kGranule, b / kGranule);
  EXPECT_EQ(b % 4096, 0u);
  EXPECT_EQ(lender.in_use(), 128 + kGranule);
  const auto large = heap.allocate(2 * kGranule + 1, 4096);
  EXPECT_EQ(lender.in_use(), 128 + 4 * kGranule);
  heap.free(large, 2 * kGranule + 1);
  heap.free(a, 100);
  EXPECT_EQ(lender.in_use(), 128 + kGranule) << "b is still there";
  heap.free(b, 15_KiB);
  EXPECT_EQ(lender.in_use(), 128u);
  EXPECT_EQ(heap.in_use(), 0u);
  EXPECT_TRUE(heap.valid());
  EXPECT_TRUE(lender.valid());
}

TEST(GranuleHeapTest, SaysWhenTheLenderHasNoWholeGranule) {
  Heap lender(kBegin, 2 * kGranule);
  GranuleHeap heap(lender, kGranule);
  lender.allocate(64, 64);
  EXPECT_EQ(heap.allocate(kGranule + 1, 64), 0u);
  EXPECT_NE(heap.allocate(kGranule, 64), 0u);
  EXPECT_EQ(heap.allocate(64, 64), 0u);
  EXPECT_TRUE(heap.valid());
}

TEST(GranuleHeapTest, RandomTensorsNeverOverlapNorShareAGranuleWithTheLenders) {
  Heap lender(kBegin + 64, 200 * kGranule);
  GranuleHeap heap(lender, kGranule);
  std::map<std::uintptr_t, std::uint64_t> here, there;
  std::mt19937 chance(7);
  const auto end = [](auto it) { return it->first + it->second; };
  for (int i = 0; i < 20000; ++i) {
    const bool own = chance() % 2 == 0;
    auto& live = own ? here : there;
    if (live.size() > 60 || (!live.empty() && chance() % 3 == 0)) {
      const auto it = std::next(live.begin(), chance() % live.size());
      own ? heap.free(it->first, it->second) : lender.free(it->first, it->second);
      live.erase(it);
      continue;
    }
    const std::uint64_t bytes = 1 + chance() % (chance() % 8 == 0 ? 3 * kGranule : 64_KiB);
    const std::uint64_t alignment = chance() % 2 == 0 ? 64 : 4096;
    const auto address = own ? heap.allocate(bytes, alignment) : lender.allocate(bytes, alignment);
    ASSERT_NE(address, 0u);
    ASSERT_EQ(address % alignment, 0u);
    live[address] = bytes;
    if (i % 64 != 0) continue;
    ASSERT_TRUE(heap.valid() && lender.valid());
    std::set<std::uintptr_t> granules;
    std::uintptr_t past = 0;
    for (auto it = here.begin(); it != here.end(); ++it) {
      ASSERT_GE(it->first, past);
      past = end(it);
      for (auto at = it->first / kGranule; at <= (past - 1) / kGranule; ++at) granules.insert(at);
    }
    for (auto it = there.begin(); it != there.end(); ++it)
      for (auto at = it->first / kGranule; at <= (end(it) - 1) / kGranule; ++at)
        ASSERT_FALSE(granules.contains(at));
  }
  for (const auto& [address, bytes] : here) heap.free(address, bytes);
  for (const auto& [address, bytes] : there) lender.free(address, bytes);
  EXPECT_EQ(lender.in_use(), 0u);
  EXPECT_EQ(lender.allocate(200 * kGranule, 64), kBegin + 64) << "nothing is lost";
}

}  // namespace
}  // namespace sentinel
