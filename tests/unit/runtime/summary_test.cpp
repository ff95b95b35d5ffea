#include "runtime/limit/summary.h"

#include <gtest/gtest.h>

namespace sentinel {
namespace {

Summary steps_of(double ms, std::uint64_t written) {
  Summary summary;
  summary.drives.rated_tb = 600;
  summary.steps.push_back({.ms = 9 * ms, .phase = "warmup", .demoted_bytes = 9 * written});
  for (int i = 0; i < 3; ++i)
    summary.steps.push_back({.ms = ms, .phase = "steady", .demoted_bytes = written});
  return summary;
}

// A GB a second are 86.4 TB a day.
TEST(Summary, TellsHowLongTheDrivesLast) {
  Summary summary = steps_of(2000, 2'000'000'000);
  EXPECT_DOUBLE_EQ(summary.steady_written_bytes(), 2e9);
  EXPECT_NEAR(summary.drive_days(), 600 / 86.4, 1e-9);
  summary.drives.count = 2;
  EXPECT_NEAR(summary.drive_days(), 1200 / 86.4, 1e-9);
}

TEST(Summary, NothingWearsWhereNothingIsWrittenToADrive) {
  EXPECT_EQ(steps_of(2000, 0).drive_days(), 0);
  Summary nodes = steps_of(2000, 2'000'000'000);
  nodes.tiers = TierNames{"node0", "node1"};
  EXPECT_EQ(nodes.drive_days(), 0);
}

TEST(Summary, PlanningIsNoStepsTime) {
  Summary summary;
  const auto hour = std::chrono::hours(1);
  summary.step_ended("profile", {});
  summary.no_step(Clock::now() - hour);
  EXPECT_GE(summary.planning_ms, 3600e3);
  EXPECT_LT(summary.step_ended("steady", {}).ms, 0) << "an hour less than it took";
}

}  // namespace
}  // namespace sentinel
