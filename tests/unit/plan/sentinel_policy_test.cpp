#include <gmock/gmock.h>

#include <chrono>

#include "contract/policy.h"
#include "plan/check/verify.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"
#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint64_t kPage = 4096;

Plan sentinel_plan(const Profile& profile, const Machine& machine, std::uint64_t budget,
                   std::uint32_t pool_frames = 0) {
  auto policy = make_policy("sentinel");
  return dynamic_cast<PlannedPolicy&>(*policy).plan(
      profile, machine, {.fast_bytes = budget, .pool_frames = pool_frames});
}

INSTANTIATE_TEST_SUITE_P(Sentinel, PolicyContract, ::testing::Values("sentinel"));
INSTANTIATE_TEST_SUITE_P(Swapping, PolicyContract,
                         ::testing::Values("g10", "g10-gds", "g10-host", "flashneuron", "lms",
                                           "ideal"));

// One layer an op, pages of 4 KiB, 6 ops of 100 us each:
//   op        0    1    2    3    4    5
//   a (10)    w                        r     written at 0, read at 5, then freed
//   b (10)         w         r               written at 1, read at 3, then freed
//   c (10)              w         r
// Held if nothing moves: 10 20 30 30 20 10 pages. With 20 pages something has to leave at ops 2
// and 3; the farthest next use is a's. It is demoted after op 0, writes during op 1 and is away
// from op 2 on. The interval rule (one layer) would bring it back at op 4, where 10 + 10 fit.
Profile three_tensors() {
  ProfileBuilder b;
  const TensorId a = b.temporary(10 * kPage, 0, 5), x = b.temporary(10 * kPage, 1, 3),
                 c = b.temporary(10 * kPage, 2, 4);
  b.op(0, 100, {}, {a});
  b.op(1, 100, {}, {x});
  b.op(2, 100, {}, {c});
  b.op(3, 100, {x});
  b.op(4, 100, {c});
  b.op(5, 100, {a});
  return b.profile;
}

TEST(SentinelPolicy, MovesNothingWhereEverythingFits) {
  const Plan plan = sentinel_plan(three_tensors(), two_tiers(kPage), 30 * kPage);
  EXPECT_THAT(plan.moves, IsEmpty());
  EXPECT_EQ(plan.peak_fast_bytes, 30 * kPage);
  EXPECT_EQ(plan.predicted_step_us, 600);
}

TEST(SentinelPolicy, DemotesTheFarthestNextUseAndBringsItBackAnIntervalAhead) {
  const Profile profile = three_tensors();
  const Plan plan = sentinel_plan(profile, two_tiers(kPage), 20 * kPage);
  ASSERT_THAT(plan.moves, SizeIs(2));
  EXPECT_EQ(plan.moves[0].direction, Direction::demote);
  EXPECT_EQ(plan.moves[0].tensor, TensorId(0));
  EXPECT_EQ(plan.moves[0].trigger, OpId(0));
  EXPECT_EQ(plan.moves[0].deadline, OpId(1));
  EXPECT_EQ(plan.moves[1].direction, Direction::promote);
  EXPECT_EQ(plan.moves[1].trigger, OpId(4));
  EXPECT_EQ(plan.moves[1].deadline, OpId(5));
  EXPECT_EQ(plan.peak_fast_bytes, 20 * kPage);
  EXPECT_THAT(verify(plan, profile), IsEmpty());
}

// With 10 pages each op's own tensor fills the memory: what the previous op used must be written
// before the next one starts, and everything is promoted at its use.
TEST(SentinelPolicy, WaitsForWritesWhereOneTensorFillsTheMemory) {
  const Profile profile = three_tensors();
  const Plan plan = sentinel_plan(profile, two_tiers(kPage), 10 * kPage);
  EXPECT_THAT(plan.streamed_ops, IsEmpty());
  EXPECT_THAT(verify(plan, profile), IsEmpty());
  for (const Move& m : plan.moves) EXPECT_EQ(m.trigger, m.deadline);
  EXPECT_EQ(plan.smallest_unstreamed_budget, 10 * kPage);
}

TEST(SentinelPolicy, StreamsAnOpThatAloneExceedsTheBudget) {
  const Profile profile = three_tensors();
  const Plan plan = sentinel_plan(profile, two_tiers(kPage), 8 * kPage);
  EXPECT_THAT(plan.streamed_ops, SizeIs(6));
  EXPECT_THAT(verify(plan, profile), IsEmpty());
}

// Each op needs 10 pages. Of the 8 that are to stay free for transfers it leaves as many as it can.
TEST(SentinelPolicy, NothingIsStreamedForTheSakeOfFreeFrames) {
  const Profile profile = three_tensors();
  for (const auto& [pages, pool, streamed] :
       {std::tuple{18u, 8u, 0u}, {17u, 7u, 0u}, {12u, 2u, 0u}}) {
    const Plan plan = sentinel_plan(profile, two_tiers(kPage), pages * kPage, 8);
    EXPECT_EQ(plan.frame_pool_bytes, pool * kPage) << pages;
    EXPECT_THAT(plan.streamed_ops, SizeIs(streamed)) << pages;
    EXPECT_EQ(plan.smallest_unstreamed_budget, 12 * kPage);
    EXPECT_THAT(verify(plan, profile), IsEmpty());
  }
}

TEST(SentinelPolicy, RefusesWhatOneInstructionCanExceed) {
  try {
    sentinel_plan(three_tensors(), two_tiers(kPage), 3 * kPage);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("smallest budget that works is 16.0 KiB"));
    EXPECT_THAT(e.what(), HasSubstr("IV-E"));
  }
}

// Weights idle over the step's end: w is used by ops 0 and 3 of 4, v only by op 1, the scratch of
// ops 2 and 3 fills the rest. v leaves after op 1 and is back before op 1 of the next step.
TEST(SentinelPolicy, PersistentTensorsIdleAcrossTheStepEnd) {
  ProfileBuilder b;
  const TensorId w = b.persistent(4 * kPage), v = b.persistent(8 * kPage);
  const TensorId s = b.temporary(8 * kPage, 3, 3);
  b.op(0, 100, {w});
  b.op(1, 100, {v});
  b.op(2, 100, {w});
  b.op(3, 100, {w}, {s});
  const Plan plan = sentinel_plan(b.profile, two_tiers(kPage), 12 * kPage);
  EXPECT_THAT(verify(plan, b.profile), IsEmpty());
  ASSERT_THAT(plan.moves, SizeIs(2));
  EXPECT_EQ(plan.moves[0].direction, Direction::promote);
  EXPECT_EQ(plan.moves[0].trigger, OpId(0));
  EXPECT_EQ(plan.moves[1].direction, Direction::demote);
  EXPECT_EQ(plan.moves[1].trigger, OpId(1));
  EXPECT_THAT(absent_at_start(plan, b.profile), ElementsAre(v));
}

// A gradient that is zeroed leaves after its use and is not fetched to be zeroed; where slow memory
// is used in place it is.
TEST(SentinelPolicy, WhatIsOverwrittenWholeIsNotFetched) {
  ProfileBuilder b;
  const TensorId g = b.persistent(10 * kPage), x = b.temporary(10 * kPage, 3, 5),
                 y = b.temporary(10 * kPage, 4, 5);
  b.op(0, 100, {}, {g});
  b.op(1, 100, {g});
  b.op(2, 100, {g});
  b.op(3, 100, {}, {x});
  b.op(4, 100, {}, {y});
  b.op(5, 100, {x, y});
  Machine machine = two_tiers(kPage);
  const Plan plan = sentinel_plan(b.profile, machine, 20 * kPage);
  ASSERT_THAT(plan.moves, SizeIs(1));
  EXPECT_EQ(plan.moves[0].direction, Direction::demote);
  EXPECT_EQ(plan.moves[0].tensor, g);
  EXPECT_THAT(verify(plan, b.profile), IsEmpty());
  machine.tiers[1].byte_addressable = true;
  const Plan in_place = sentinel_plan(b.profile, machine, 20 * kPage);
  EXPECT_THAT(in_place.moves, SizeIs(2));
}

TEST(SentinelPolicy, UnusedPersistentTensorStaysAway) {
  ProfileBuilder b;
  const TensorId unused = b.persistent(8 * kPage), w = b.persistent(8 * kPage);
  b.op(0, 100, {w});
  b.op(1, 100, {w});
  const Plan plan = sentinel_plan(b.profile, two_tiers(kPage), 8 * kPage);
  EXPECT_THAT(verify(plan, b.profile), IsEmpty());
  ASSERT_THAT(plan.moves, SizeIs(1));
  EXPECT_EQ(plan.moves[0].tensor, unused);
}

// A large and a small weight share a granule: the granule leaves only when both are idle.
TEST(SentinelPolicy, SharedGranulesAreCountedOnce) {
  ProfileBuilder b;
  const TensorId large = b.persistent(5_MiB), small = b.persistent(100_KiB);
  const TensorId other = b.persistent(6_MiB);
  for (std::uint32_t k = 0; k < 8; ++k) b.op(k, 10000, {k < 3 ? large : k < 4 ? small : other});
  const Plan plan = sentinel_plan(b.profile, two_tiers(2_MiB), 10_MiB);
  EXPECT_THAT(verify(plan, b.profile), IsEmpty());
  EXPECT_THAT(plan.streamed_ops, IsEmpty());
}

TEST(SentinelPolicy, OptimizerIntervalTrialCanBeLeftOutAndNothingElse) {
  auto policy = make_policy("sentinel");
  auto& planned = dynamic_cast<PlannedPolicy&>(*policy);
  const Profile profile = random_training(3);
  const Plan plan =
      planned.plan(profile, two_tiers(kPage),
                   {.fast_bytes = peak_live_bytes(profile) / 2, .without = {"interval-trial"}});
  EXPECT_EQ(plan.effort, 1u);
  EXPECT_THROW(planned.plan(profile, two_tiers(kPage), {.fast_bytes = 1_GiB, .without = {"wings"}}),
               Error);
}

TEST(SentinelPolicy, NeverStreamsFromTheStatedBudgetOn) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Profile profile = random_training(seed);
    const Machine machine = two_tiers(kPage);
    const Plan first = sentinel_plan(profile, machine, peak_live_bytes(profile) / 2);
    const Plan at = sentinel_plan(profile, machine, first.smallest_unstreamed_budget);
    const Plan below = sentinel_plan(profile, machine, first.smallest_unstreamed_budget - kPage);
    EXPECT_THAT(at.streamed_ops, IsEmpty()) << seed;
    EXPECT_THAT(verify(at, profile), IsEmpty()) << seed;
    EXPECT_THAT(below.streamed_ops, ::testing::Not(IsEmpty())) << seed;
  }
}

struct Case {
  std::uint64_t seed, granule;
};

class RandomTraining : public ::testing::TestWithParam<Case> {};

TEST_P(RandomTraining, PlansHoldAtEveryBudget) {
  const auto [seed, granule] = GetParam();
  const Profile profile = random_training(seed);
  for (std::uint64_t percent = 20; percent <= 100; percent += 10) {
    const std::uint64_t budget = peak_live_bytes(profile) * percent / 100 + 8 * granule;
    const Plan plan = sentinel_plan(profile, two_tiers(granule), budget, 2);
    EXPECT_THAT(verify(plan, profile), IsEmpty()) << percent << " %";
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (std::uint64_t seed = 1; seed <= 25; ++seed)
    for (std::uint64_t granule : {4_KiB, 64_KiB, 2_MiB}) all.push_back({seed, granule});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomTraining, ::testing::ValuesIn(cases()));

class RandomGraph : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(RandomGraph, PlansHoldOrAreRefused) {
  const Profile profile = random_graph(GetParam());
  for (const std::uint64_t granule : {4_KiB, 2_MiB})
    for (const std::uint64_t percent : {5, 20, 40, 60, 80, 100}) {
      const std::uint64_t budget = peak_live_bytes(profile) * percent / 100;
      try {
        const Plan plan = sentinel_plan(profile, two_tiers(granule), budget, 2);
        EXPECT_THAT(verify(plan, profile), IsEmpty()) << percent << " %, granule " << granule;
      } catch (const Error& e) {
        EXPECT_THAT(e.what(), HasSubstr("smallest budget"));
      }
    }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraph, ::testing::Range<std::uint64_t>(1, 301));

TEST(SentinelPolicy, PlansTenThousandTensorsQuickly) {
  const Profile profile = random_training(7, {.layers = 1600, .ops_per_layer = 3});
  ASSERT_GT(profile.ops.size(), 10000u);
  ASSERT_GT(profile.tensors.size(), 10000u);
  const auto start = std::chrono::steady_clock::now();
  const Plan plan = sentinel_plan(profile, two_tiers(2_MiB), peak_live_bytes(profile) / 5, 8);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  RecordProperty("plan_ms", static_cast<int>(took.count() * 1000));
  EXPECT_THAT(verify(plan, profile), IsEmpty());
}

}  // namespace
}  // namespace sentinel::plan
