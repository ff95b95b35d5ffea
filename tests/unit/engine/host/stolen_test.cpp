#include "engine/host/stolen.h"

#include <gtest/gtest.h>

namespace sentinel {
namespace {

TEST(Stolen, IsTheEighthOfTheFirstLine) {
  const auto ticks = processor_ticks("cpu  100 1 20 70 3 0 2 4 9 9\ncpu0 50 0 10 35 2 0 1 3 0 0\n");
  EXPECT_EQ(ticks.all, 200u);  // a guest's ticks are among its host's own
  EXPECT_EQ(ticks.stolen, 4u);
}

TEST(Stolen, NothingIsSaidOfAnotherText) {
  for (const char* text : {"", "cpu", "cpu ", "cpu  1 2 3", "cpu  1 2 3 4 5 6 7 x", "intr 1 2 3"})
    EXPECT_EQ(processor_ticks(text).all, 0u) << text;
}

TEST(Stolen, PartOfTheTimeBetween) {
  EXPECT_DOUBLE_EQ(stolen_between({1000, 10}, {1200, 26}), 0.08);
  EXPECT_EQ(stolen_between({1000, 10}, {1000, 10}), 0);
  EXPECT_EQ(stolen_between({1000, 10}, {0, 0}), 0);     // the kernel no longer says
  EXPECT_EQ(stolen_between({1000, 10}, {1100, 9}), 0);  // the host moved to another one
}

TEST(Stolen, TheKernelCounts) {
  const auto before = processor_ticks();
  ASSERT_GT(before.all, 0u);
  EXPECT_GE(processor_ticks().all, before.all);
}

}  // namespace
}  // namespace sentinel
