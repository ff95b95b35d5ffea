// The policies for byte-addressable slower tiers: what each promises. Their times, by hand, are in
// unit/sim/byte_addressable_test.cpp.
#include <gmock/gmock.h>

#include "contract/policy.h"
#include "plan/check/plan_file.h"
#include "plan/check/verify.h"
#include "plan/solver/integer_program.h"
#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

INSTANTIATE_TEST_SUITE_P(InPlace, PolicyContract,
                         ::testing::Values("first-touch", "slow-only", "ial", "autotm"));

Plan autotm_plan(const Profile& profile, const Machine& machine, std::uint64_t percent) {
  const auto policy = make_policy("autotm");
  return dynamic_cast<PlannedPolicy&>(*policy).plan(
      profile, machine,
      {.fast_bytes = peak_live_bytes(profile) * percent / 100 + 64 * 4096, .effort = 5});
}

Machine in_place(Machine machine) {
  machine.tiers[1].byte_addressable = true;
  return machine;
}

TEST(AutoTmPlans, AreValidOnBothKindsOfMachine) {
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    const Profile profile = random_training(seed);
    EXPECT_THAT(verify(autotm_plan(profile, in_place(two_tiers(4096)), 20), profile), IsEmpty());
    try {
      EXPECT_THAT(verify(autotm_plan(profile, two_tiers(4096), 50), profile), IsEmpty());
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("at once"));
    }
  }
}

TEST(AutoTmPlans, UsesInPlaceSurviveTheFile) {
  const Profile profile = random_training(2);
  const Plan plan = autotm_plan(profile, in_place(two_tiers(4096)), 20);
  ASSERT_THAT(plan.in_place, Not(IsEmpty()));
  ASSERT_THAT(plan.births, Not(IsEmpty()));
  const Plan again = plan_from_json(plan_to_json(plan), "test");
  EXPECT_EQ(again.in_place, plan.in_place);
  EXPECT_EQ(again.births.size(), plan.births.size());
  EXPECT_THAT(verify(again, profile), IsEmpty());
}

// Without its entry a use in slow memory is one in fast memory: of what is not there, or of what is
// born there and needs room.
TEST(AutoTmPlans, VerifyNeedsToBeToldOfUsesInPlace) {
  const Profile profile = random_training(2);
  const Plan plan = autotm_plan(profile, in_place(two_tiers(4096)), 20);
  std::string objections;
  for (std::size_t i = 0; i < plan.in_place.size(); ++i) {
    Plan without = plan;
    without.in_place.erase(without.in_place.begin() + static_cast<std::ptrdiff_t>(i));
    const auto found = verify(without, profile);
    EXPECT_THAT(found, Not(IsEmpty())) << i;
    for (const auto& objection : found) objections += objection;
  }
  EXPECT_THAT(objections, HasSubstr("while it is demoted"));
}

TEST(SentinelWithout, EveryFeatureCanBeLeftOut) {
  const auto policy = make_policy("sentinel");
  auto& planned = dynamic_cast<PlannedPolicy&>(*policy);
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Profile profile = random_training(seed);
    for (const char* feature : {"reserved-space", "interval-choice", "co-location"}) {
      const Plan plan =
          planned.plan(profile, two_tiers(4096),
                       {.fast_bytes = peak_live_bytes(profile) / 2, .without = {feature}});
      EXPECT_THAT(verify(plan, profile), IsEmpty()) << feature;
      EXPECT_EQ(plan.reserved_bytes == 0, feature == std::string("reserved-space"));
      EXPECT_EQ(plan.interval_layers == 0, feature == std::string("interval-choice"));
    }
  }
}

// Three things of value 4, 3, 2 and weight 2, 1, 1 in a sack of 2: the last two.
TEST(IntegerProgram, FillsASack) {
  IntegerProgram program;
  for (double value : {4.0, 3.0, 2.0}) program.add_column(-value, true);
  program.rows.push_back({{{0, 2}, {1, 1}, {2, 1}}, 0, 2});
  const auto x = solve(program, {.nodes = 10, .seconds = 10});
  ASSERT_TRUE(x);
  EXPECT_THAT(*x,
              ::testing::ElementsAre(::testing::DoubleNear(0, 1e-6), ::testing::DoubleNear(1, 1e-6),
                                     ::testing::DoubleNear(1, 1e-6)));
}

TEST(IntegerProgram, SaysWhereThereIsNoSolution) {
  IntegerProgram program;
  program.add_column(1, true);
  program.rows.push_back({{{0, 1}}, 0.25, 0.75});
  EXPECT_FALSE(solve(program, {.nodes = 10, .seconds = 10}));
}

}  // namespace
}  // namespace sentinel::plan
