#include "capture/userfault/window.h"

#include <gmock/gmock.h>

#include <vector>

namespace sentinel {
namespace {

struct WindowTest : testing::Test {
  Opening storage[8];
  Window window{storage, 8};
  std::vector<std::uintptr_t> open(std::uintptr_t page, std::uint64_t width,
                                   std::uint32_t weight = 1, std::size_t floor = 0) {
    window.push(page, page, weight);
    std::vector<std::uintptr_t> left;
    while (window.leaves(width, floor)) left.push_back(window.pop().page);
    return left;
  }
};

using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(WindowTest, OfWidthOneHoldsTheLastPage) {
  EXPECT_THAT(open(1, 1), IsEmpty());
  EXPECT_THAT(open(2, 1), ElementsAre(1));
  EXPECT_THAT(open(3, 1), ElementsAre(2));
  EXPECT_EQ(window.size(), 1u);
}

TEST_F(WindowTest, IsAFifoOverItsStoragesEnd) {
  for (std::uintptr_t page = 1; page <= 3; ++page) EXPECT_THAT(open(page, 3), IsEmpty());
  for (std::uintptr_t page = 4; page < 30; ++page)
    EXPECT_THAT(open(page, 3), ElementsAre(page - 3));
}

TEST_F(WindowTest, AHeavyOpeningPushesOutSeveral) {
  for (std::uintptr_t page = 1; page <= 4; ++page) open(page, 4);
  EXPECT_THAT(open(5, 4, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(open(6, 4, 64), ElementsAre(4, 5));
  EXPECT_EQ(window.size(), 1u);
}

TEST_F(WindowTest, TheNewestStayWhateverTheyWeigh) {
  for (std::uintptr_t page = 1; page <= 3; ++page) EXPECT_THAT(open(page, 1, 64, 3), IsEmpty());
  EXPECT_THAT(open(4, 1, 64, 3), ElementsAre(1));
}

TEST_F(WindowTest, TellsBeforehandWhetherAnOpeningDisplaces) {
  EXPECT_FALSE(window.leaves(2, 0, 1));
  open(1, 2);
  EXPECT_FALSE(window.leaves(2, 0, 1));
  open(2, 2);
  EXPECT_TRUE(window.leaves(2, 0, 1));
  EXPECT_FALSE(window.leaves(2));
}

}  // namespace
}  // namespace sentinel
