#include "capture/page_index.h"

#include <gtest/gtest.h>

#include "capture/sampling.h"

namespace sentinel {
namespace {

constexpr std::uintptr_t kPage = PageIndex::kPage;
constexpr std::uintptr_t kLeaf = std::uintptr_t{128} << 20;

TEST(PageIndex, FindsWhatWasPrepared) {
  PageIndex index;
  const std::uintptr_t begin = 3 * kLeaf - 2 * kPage;
  EXPECT_EQ(index.find(begin), nullptr);
  ASSERT_EQ(index.prepare(begin, begin + 4 * kPage), 0);
  for (std::uintptr_t i = 0; i < 4; ++i) index.find(begin + i * kPage)->weight = 1;
  EXPECT_TRUE(index.find(begin + 3 * kPage + 77)->armed());
  EXPECT_FALSE(index.find(begin + 4 * kPage)->tracked());
}

TEST(PageIndex, RefusesAddressesOutOfReach) {
  PageIndex index;
  EXPECT_EQ(index.prepare(std::uintptr_t{1} << 47, (std::uintptr_t{1} << 47) + kPage), -EFAULT);
  EXPECT_EQ(index.find(~std::uintptr_t{0}), nullptr);
}

TEST(PageIndex, MeasuresUntrackedRuns) {
  PageIndex index;
  ASSERT_EQ(index.prepare(kLeaf, kLeaf + kPage), 0);
  index.find(kLeaf + 5 * kPage)->weight = 1;
  EXPECT_EQ(index.untracked_run(kLeaf, 100), 5u);
  EXPECT_EQ(index.untracked_run(kLeaf + 6 * kPage, 100), 100u);
  EXPECT_EQ(index.untracked_run(kLeaf + 5 * kPage, 100), 0u);
  index.forget(kLeaf, kLeaf + 6 * kPage);
  EXPECT_EQ(index.untracked_run(kLeaf, 100), 100u);
}

TEST(Sampling, OnePageOfEachRunAndTheWeightsAreThePages) {
  for (const std::size_t pages : {1u, 63u, 64u, 65u, 1000u}) {
    std::size_t runs = 0, weight = 0, even_weight = 0;
    for_each_sampled(pages, 64, 7, [&](std::size_t page, std::uint32_t of, bool even) {
      EXPECT_EQ(page / 64, runs);
      EXPECT_EQ(even, runs % 2 == 0);
      if (even) even_weight += of;
      EXPECT_LT(page, pages);
      ++runs;
      weight += of;
    });
    EXPECT_EQ(runs, (pages + 63) / 64);
    EXPECT_EQ(weight, pages);
    EXPECT_EQ(even_weight, even_pages(pages, 64));
  }
}

TEST(Sampling, PlacesDependOnTheSeedOnly) {
  const auto places = [](std::uint64_t seed) {
    std::size_t sum = 0;
    for_each_sampled(6400, 64, seed,
                     [&](std::size_t page, std::uint32_t, bool) { sum = sum * 31 + page; });
    return sum;
  };
  EXPECT_EQ(places(1), places(1));
  EXPECT_NE(places(1), places(2));
}

}  // namespace
}  // namespace sentinel
