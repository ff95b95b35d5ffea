// What every policy promises (include/sentinel/policy.h). A policy joins with one line:
//   INSTANTIATE_TEST_SUITE_P(Mine, sentinel::PolicyContract, ::testing::Values("mine"));
#pragma once

#include <gmock/gmock.h>

#include "plan/verify.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"
#include "unit/plan/profiles.h"

namespace sentinel {

class PolicyContract : public ::testing::TestWithParam<const char*> {
 protected:
  // Some work only where ops can use the slower tier in place, and refuse other machines.
  void SetUp() override {
    try {
      controller();
    } catch (const Error&) {
      machine_.tiers[1].byte_addressable = true;
    }
  }
  std::unique_ptr<Policy> policy() const { return make_policy(GetParam()); }
  std::unique_ptr<Controller> controller() const {
    const auto made = policy();
    if (auto* planned = dynamic_cast<PlannedPolicy*>(made.get()))
      return walk(planned->plan(profile_, machine_, options_));
    return dynamic_cast<OnlinePolicy&>(*made).prepare(profile_, machine_, options_);
  }

  // What a controller says over two steps, as text: moves in order with where they were said.
  static std::vector<std::string> transcript(Controller& controller, const Profile& profile) {
    std::vector<std::string> said;
    std::vector<Move> moves;
    const auto note = [&](std::size_t k, const char* when) {
      for (const Move& m : moves) {
        EXPECT_LT(m.tensor.index(), profile.tensors.size());
        EXPECT_GE(m.tier, 1u);
        said.push_back(std::to_string(k) + when + std::to_string(m.tensor.value) +
                       (m.direction == Direction::promote  ? " in"
                        : m.direction == Direction::demote ? " out"
                                                           : " discarded"));
      }
      moves.clear();
    };
    for (int step = 0; step < 2; ++step)
      for (std::size_t k = 0; k < profile.ops.size(); ++k) {
        controller.op_start(OpId(k), moves);
        note(k, " start ");
        controller.op_end(OpId(k), moves);
        note(k, " end ");
      }
    return said;
  }

  Profile profile_ = testing::random_training(11);
  Machine machine_ = testing::two_tiers(4096);
  PlanOptions options_{.fast_bytes = peak_live_bytes(profile_) / 2};
};

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
  EXPECT_EQ(plan.fast_bytes, options_.fast_bytes);
  EXPECT_EQ(plan.profile_signature, profile_.meta.signature);
  EXPECT_THROW(planned->plan(profile_, machine_, {.fast_bytes = 1}), Error);
}

TEST_P(PolicyContract, PlanWithoutScarcityMovesNothing) {
  const auto made = policy();
  auto* planned = dynamic_cast<PlannedPolicy*>(made.get());
  if (!planned) GTEST_SKIP() << GetParam() << " decides as it goes and makes no plan";
  const Plan plan = planned->plan(profile_, machine_, {.fast_bytes = 1024_GiB});
  EXPECT_THAT(plan.moves, ::testing::IsEmpty());
}

}  // namespace sentinel
