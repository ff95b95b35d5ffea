// When a kind of step is measured, and when its times have drifted.
#include "runtime/step/drift.h"

#include <gmock/gmock.h>

#include <vector>

namespace sentinel {
namespace {

Profile profile_of(std::size_t ops, double us) {
  Profile profile;
  for (std::size_t op = 0; op < ops; ++op) profile.ops.push_back({.name = "op", .us = us});
  return profile;
}

int steps_until_measured(Drift& drift) {
  int steps = 1;
  while (!drift.step_over()) ++steps;
  return steps;
}

TEST(Drift, IsByTheAverage) {
  auto profile = profile_of(4, 100);
  Drift drift(profile);
  EXPECT_FALSE(drift.measured(std::vector<double>(4, 110)));
  EXPECT_FALSE(drift.wants_plan());
  EXPECT_TRUE(drift.measured(std::vector<double>(4, 160)));
  EXPECT_TRUE(drift.wants_plan());
  drift.tell(profile);
  for (const auto& op : profile.ops) EXPECT_DOUBLE_EQ(op.us, 132.5);
  drift.plan_made();
  EXPECT_FALSE(drift.wants_plan());
  EXPECT_FALSE(drift.measured(std::vector<double>(4, 140)));
}

TEST(Drift, OtherOpsSayNothing) {
  Drift drift(profile_of(4, 100));
  EXPECT_FALSE(drift.measured({}));
  EXPECT_FALSE(drift.measured(std::vector<double>(5, 900)));
}

TEST(Drift, IsLookedForLessOftenWhereItLeadsToPlans) {
  Drift drift(profile_of(4, 100));
  EXPECT_EQ(steps_until_measured(drift), 16);
  EXPECT_TRUE(drift.measures());
  EXPECT_FALSE(drift.step_over());
  EXPECT_FALSE(drift.measures()) << "one step in so many";
  EXPECT_EQ(steps_until_measured(drift), 15);
  drift.measured(std::vector<double>(4, 400));
  drift.plan_made();
  EXPECT_EQ(steps_until_measured(drift), 32);
  drift.measured(std::vector<double>(4, 2000));
  drift.plan_made();
  EXPECT_EQ(steps_until_measured(drift), 64);
  drift.plan_made();  // for another grant
  EXPECT_EQ(steps_until_measured(drift), 64);
}

}  // namespace
}  // namespace sentinel
