// What every policy promises (include/sentinel/policy.h); the promises themselves are in
// unit/plan/policy_contract_test.cpp. A policy joins, in its own test, with one line:
//   INSTANTIATE_TEST_SUITE_P(Mine, sentinel::PolicyContract, ::testing::Values("mine"));
#pragma once

#include <gmock/gmock.h>

#include "plan/check/verify.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"
#include "unit/plan/profiles.h"

namespace sentinel {

class PolicyContract : public ::testing::TestWithParam<const char*> {
 protected:
  // Half of the peak; more for a method that has to leave weights in place. Some work only where
  // ops can use the slower tier in place, and refuse other machines.
  void SetUp() override {
    for (const bool in_place : {false, true})
      for (std::uint64_t tenths = 5; tenths < 10; ++tenths) {
        machine_.tiers[1].byte_addressable = in_place;
        options_.fast_bytes = peak_live_bytes(profile_) * tenths / 10;
        try {
          controller();
          return;
        } catch (const Error&) {
        }
      }
    FAIL() << GetParam() << " accepts no budget below the peak";
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
                       (m.direction == Direction::promote   ? " in"
                        : m.direction == Direction::demote  ? " out"
                        : m.direction == Direction::copy    ? " copied"
                        : m.direction == Direction::release ? " given up"
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

}  // namespace sentinel
