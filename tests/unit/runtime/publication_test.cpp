#include "runtime/limit/publication.h"

#include <gtest/gtest.h>

namespace sentinel {
namespace {

constexpr std::uint64_t kBytes = 1 << 20;

// Two tensors that live from op 0 to the last; the first is away in between.
Profile profile_of(std::uint32_t ops) {
  Profile profile;
  for (std::uint32_t i = 0; i < ops; ++i) profile.ops.push_back({.name = "op"});
  for (const auto* name : {"moved", "kept"})
    profile.tensors.push_back(
        {.name = name, .bytes = kBytes, .alloc_op = OpId(0), .free_op = OpId(ops - 1)});
  return profile;
}

Plan plan_of(std::uint32_t leaves, std::uint32_t gone, std::uint32_t comes, std::uint32_t back) {
  Plan plan;
  plan.moves.push_back({.tensor = TensorId(0),
                        .direction = Direction::demote,
                        .trigger = OpId(leaves),
                        .deadline = OpId(gone)});
  plan.moves.push_back({.tensor = TensorId(0),
                        .direction = Direction::promote,
                        .trigger = OpId(comes),
                        .deadline = OpId(back)});
  return plan;
}

TEST(DescribedPlans, TellWhatFastMemoryHolds) {
  DescribedPlans plans;
  const auto& told = plans.of(0, profile_of(6), plan_of(0, 1, 4, 5));
  ASSERT_EQ(told.points, 6u);
  for (std::uint32_t op = 0; op < 6; ++op) {
    EXPECT_EQ(told.memory[op].needed_bytes, 2 * kBytes) << op;
    EXPECT_EQ(told.memory[op].held_bytes, op < 2 || op >= 4 ? 2 * kBytes : kBytes) << op;
  }
  EXPECT_EQ(told.in_bytes, kBytes);
  EXPECT_EQ(told.out_bytes, kBytes);
  ASSERT_EQ(told.tensors, 1u);
  EXPECT_EQ(told.moves[0].name.view(), "moved");
}

// The second time neither profile nor plan is looked at: these are empty.
TEST(DescribedPlans, PlansThatTakeTurnsAreDescribedOnce) {
  DescribedPlans plans;
  const auto* first = &plans.of(3, profile_of(6), plan_of(0, 1, 4, 5));
  const auto* second = &plans.of(5, profile_of(9), plan_of(0, 1, 7, 8));
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(&plans.of(3, {}, {}), first);
    EXPECT_EQ(&plans.of(5, {}, {}), second);
  }
  EXPECT_EQ(first->ops, 6u);
  EXPECT_EQ(second->ops, 9u);
  EXPECT_EQ(second->moves[0].returns, 8u);
}

}  // namespace
}  // namespace sentinel
