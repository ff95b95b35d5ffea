#include <gmock/gmock.h>
#include <tbb/global_control.h>

#include "contract/policy.h"
#include "plan/gaps/feature_maps.h"
#include "plan/search/choice_seeds.h"
#include "plan/search/cost_run.h"
#include "plan/search/swarm.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint64_t kPage = 4096;

INSTANTIATE_TEST_SUITE_P(Home, PolicyContract, ::testing::Values("home"));

Plan home_plan(const Profile& profile, const Machine& machine, const PlanOptions& options) {
  return dynamic_cast<PlannedPolicy&>(*make_policy("home")).plan(profile, machine, options);
}

// w -> op 0 -> x -> op 1 -> y -> op 2 -> z; backward reads z, y, x. 10 pages each; a transfer takes
// 40.96 us, an op of forward `us`, one of backward 10 us.
Profile chain(double us) {
  ProfileBuilder b;
  const TensorId w = b.persistent(kPage), x = b.temporary(10 * kPage, 0, 5),
                 y = b.temporary(10 * kPage, 1, 4), z = b.temporary(10 * kPage, 2, 3);
  b.op(0, us, {w}, {x});
  b.op(1, us, {w, x}, {y});
  b.op(2, us, {w, y}, {z});
  b.op(3, 10, {w, z});
  b.op(4, 10, {w, y});
  b.op(5, 10, {w, x});
  for (std::size_t k = 3; k < 6; ++k) b.profile.ops[k].phase = Phase::backward;
  return b.profile;
}

// 11, 21, 31, 31, 21, 11 pages are held; with 21, x has to be away at ops 2 and 3 (y's gap holds
// one op only). Forward ops of 5 us: replaying op 0 before op 5 costs 5 us. A swap would write from
// 10 on and op 2 would wait until 50.96 for its space. So x is recomputed: 15 + 30 + 5 = 50 us.
TEST(HomePolicy, RecomputesWhatIsCheaperToMakeThanToMove) {
  const Profile profile = chain(5);
  const Plan plan = home_plan(profile, two_tiers(kPage), {.fast_bytes = 21 * kPage});
  EXPECT_THAT(verify(plan, profile), IsEmpty());
  ASSERT_THAT(plan.moves, SizeIs(1));
  EXPECT_EQ(plan.moves[0].direction, Direction::discard);
  EXPECT_EQ(plan.moves[0].trigger, OpId(1));
  EXPECT_THAT(plan.recomputations,
              ElementsAre(Recompute{.op = OpId(0), .before = OpId(5), .keep = {TensorId(1)}}));
  EXPECT_NEAR(plan.predicted_step_us, 50, 0.01);
}

// Forward ops of 500 us and a byte less than everything needs: op 2 waits for the write of x, from
// 1000 to 1040.96 us. There is room for x again from op 4 on, which leaves 10 us of the
// fetch's 40.96 hidden: 1530 + 40.96 + 30.96 us, still far less than 500 us for making x again.
TEST(HomePolicy, SwapsWhatIsCheaperToMove) {
  const Profile profile = chain(500);
  const Plan plan = home_plan(profile, two_tiers(kPage), {.fast_bytes = 31 * kPage - 1});
  EXPECT_THAT(verify(plan, profile), IsEmpty());
  EXPECT_THAT(plan.recomputations, IsEmpty());
  ASSERT_THAT(plan.moves, SizeIs(2));
  EXPECT_EQ(plan.moves[0].trigger, OpId(1));
  EXPECT_EQ(plan.moves[1].trigger, OpId(4));
  EXPECT_NEAR(plan.predicted_step_us, 1601.92, 0.01);
}

TEST(HomePolicy, RecomputesNothingWhereThatIsForbidden) {
  const Profile profile = chain(5);
  const Plan plan =
      home_plan(profile, two_tiers(kPage), {.fast_bytes = 31 * kPage - 1, .recompute = false});
  EXPECT_THAT(plan.recomputations, IsEmpty());
  EXPECT_THAT(verify(plan, profile), IsEmpty());
}

TEST(HomePolicy, RefusesWithTheOpAndTheBytesThatAreTooMany) {
  try {
    home_plan(chain(5), two_tiers(kPage), {.fast_bytes = 15 * kPage});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("op 1 (op1) still holds 24.0 KiB too many"));
  }
}

TEST(HomePolicy, IsTheSameWithAnyNumberOfThreads) {
  const Profile profile = random_training(4, {.layers = 30});
  const PlanOptions options{.fast_bytes = peak_live_bytes(profile) * 8 / 10,
                            .seed = 5,
                            .effort = 12,
                            .time_limit_s = 100};
  const Plan many = home_plan(profile, two_tiers(kPage, 5), options);
  const tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
  const Plan single = home_plan(profile, two_tiers(kPage, 5), options);
  EXPECT_EQ(many.effort, 12u);
  EXPECT_EQ(many.effort, single.effort);
  EXPECT_EQ(many.predicted_step_us, single.predicted_step_us);
  EXPECT_EQ(many.recomputations, single.recomputations);
  ASSERT_EQ(many.moves.size(), single.moves.size());
  for (std::size_t i = 0; i < many.moves.size(); ++i) {
    EXPECT_EQ(many.moves[i].tensor, single.moves[i].tensor);
    EXPECT_EQ(many.moves[i].trigger, single.moves[i].trigger);
  }
}

// The search as published reaches no better plan in as many rounds.
TEST(HomePolicy, SeedsAreWorthTheirWhile) {
  const Profile profile = random_training(9, {.layers = 40});
  PlanOptions options{.fast_bytes = peak_live_bytes(profile) * 8 / 10,
                      .effort = kRoundsPerIteration,
                      .time_limit_s = 100};
  const Plan seeded = home_plan(profile, two_tiers(kPage, 5), options);
  options.without = {"seeds"};
  const Plan published = home_plan(profile, two_tiers(kPage, 5), options);
  EXPECT_THAT(verify(published, profile), IsEmpty());
  EXPECT_LE(seeded.predicted_step_us, published.predicted_step_us);
}

class SmallSwarm : public ::testing::TestWithParam<std::uint64_t> {};

// All 3^n vectors of choices against what the swarm finds.
TEST_P(SmallSwarm, FindsTheBestOfAll) {
  const Profile profile = random_training(GetParam(), {.layers = 4, .ops_per_layer = 2});
  const auto all = storages(profile);
  const auto maps = feature_maps(profile, all);
  ASSERT_GE(maps.size(), 4u);
  const CostModel model({.profile = profile,
                         .machine = two_tiers(kPage, 4),
                         .storages = all,
                         .gaps = maps,
                         .limit = peak_live_bytes(profile) * 85 / 100,
                         .lead = 1});
  CostRun run(model);
  std::vector<Remedy> choices(model.size(), Remedy::keep);
  Cost best = run.evaluate(choices);
  const auto next = [&] {
    for (std::uint32_t i = 0; i < choices.size(); ++i) {
      const auto last = model.recomputable(i) ? Remedy::recompute : Remedy::swap;
      if (choices[i] != last) {
        choices[i] = static_cast<Remedy>(static_cast<int>(choices[i]) + 1);
        return true;
      }
      choices[i] = Remedy::keep;
    }
    return false;
  };
  while (next()) best = std::min(best, run.evaluate(choices));
  const SwarmResult found =
      swarm_search(model, choice_seeds(model),
                   {.seed = 1,
                    .rounds = 3 * kRoundsPerIteration,
                    .deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1)});
  EXPECT_EQ(found.cost, best);
  EXPECT_EQ(run.evaluate(found.choices), best);
}
INSTANTIATE_TEST_SUITE_P(Seeds, SmallSwarm, ::testing::Range<std::uint64_t>(1, 21));

// A budget of time that is gone at once: the best seed, and no round.
TEST(HomePolicy, TimeLimitOnlyCuts) {
  const Profile profile = random_training(3, {.layers = 100});
  const Plan plan =
      home_plan(profile, two_tiers(kPage, 5),
                {.fast_bytes = peak_live_bytes(profile) * 85 / 100, .time_limit_s = 0});
  EXPECT_EQ(plan.effort, 0u);
  EXPECT_THAT(verify(plan, profile), IsEmpty());
}

}  // namespace
}  // namespace sentinel::plan
