#include <algorithm>

#include "contract/policy.h"

namespace sentinel {

TEST_P(PolicyContract, IsKnownByItsName) {
  EXPECT_EQ(policy()->name(), GetParam());
  EXPECT_THAT(policy_names(), ::testing::Contains(std::string_view(GetParam())));
}

TEST_P(PolicyContract, SaysTheSameEveryTime) {
  const auto first = controller();
  const auto second = controller();
  EXPECT_EQ(transcript(*first, profile_), transcript(*second, profile_));
}

TEST_P(PolicyContract, LeavesForeignMemoryAlone) {
  profile_.tensors[0].foreign = true;
  const auto said_by = controller();
  for (const std::string& said : transcript(*said_by, profile_)) {
    EXPECT_THAT(said, ::testing::Not(::testing::EndsWith(" 0 in")));
    EXPECT_THAT(said, ::testing::Not(::testing::EndsWith(" 0 out")));
  }
}

TEST_P(PolicyContract, PlansVerifyAndRefuseWhatCannotWork) {
  const auto made = policy();
  auto* planned = dynamic_cast<PlannedPolicy*>(made.get());
  if (!planned) GTEST_SKIP() << GetParam() << " decides as it goes and makes no plan";
  const Plan plan = planned->plan(profile_, machine_, options_);
  EXPECT_THAT(plan::verify(plan, profile_), ::testing::IsEmpty());
  EXPECT_EQ(plan.policy, GetParam());
  EXPECT_EQ(plan.profile_signature, profile_.meta.signature);
  if (std::string_view(GetParam()) == "ideal") return;  // it ignores the budget
  EXPECT_EQ(plan.fast_bytes, options_.fast_bytes);
  EXPECT_THROW(planned->plan(profile_, machine_, {.fast_bytes = 1}), Error);
}

TEST_P(PolicyContract, PlanWithoutScarcityMovesNothing) {
  const auto made = policy();
  auto* planned = dynamic_cast<PlannedPolicy*>(made.get());
  if (!planned) GTEST_SKIP() << GetParam() << " decides as it goes and makes no plan";
  PlanOptions ample{.fast_bytes = 1024_GiB};
  // One that aims at the lowest peak, whatever the budget, can be told to aim at the budget.
  if (std::ranges::count(made->features(), "below-budget") > 0) ample.without = {"below-budget"};
  const Plan plan = planned->plan(profile_, machine_, ample);
  EXPECT_THAT(plan.moves, ::testing::IsEmpty());
}

}  // namespace sentinel
