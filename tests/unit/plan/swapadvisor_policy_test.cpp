#include <gmock/gmock.h>
#include <tbb/global_control.h>

#include "contract/policy.h"
#include "plan/policies/swapadvisor/pools.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint64_t kPage = 4096;

INSTANTIATE_TEST_SUITE_P(SwapAdvisor, PolicyContract, ::testing::Values("swapadvisor"));

Plan plan_of(const Profile& profile, const PlanOptions& options) {
  return dynamic_cast<PlannedPolicy&>(*make_policy("swapadvisor"))
      .plan(profile, two_tiers(kPage), options);
}

// a is made by op 0 and read by op 5, b 1 and 3, c 2 and 4; `last` pages for c, 10 for the others.
Profile three_tensors(std::uint64_t last = 10) {
  ProfileBuilder b;
  const TensorId a = b.temporary(10 * kPage, 0, 5), x = b.temporary(10 * kPage, 1, 3),
                 c = b.temporary(last * kPage, 2, 4);
  b.op(0, 100, {}, {a});
  b.op(1, 100, {}, {x});
  b.op(2, 100, {}, {c});
  b.op(3, 100, {x});
  b.op(4, 100, {c});
  b.op(5, 100, {a});
  return b.profile;
}

// One size, so one pool of two slots. Op 2 finds it full of a, used again by op 5, and b, by op 3:
// a goes. It is written from 100 to 140.96 us, and fetched at op 4, more than twice 40.96 us before
// op 5: nothing waits.
TEST(SwapAdvisorPolicy, PutsOutTheFarthestNextUseOfAFullPool) {
  const Profile profile = three_tensors();
  const Plan plan = plan_of(profile, {.fast_bytes = 20 * kPage});
  EXPECT_THAT(verify(plan, profile), IsEmpty());
  ASSERT_THAT(plan.moves, SizeIs(2));
  EXPECT_EQ(plan.moves[0].tensor, TensorId(0));
  EXPECT_EQ(plan.moves[0].direction, Direction::demote);
  EXPECT_EQ(plan.moves[0].trigger, OpId(0));
  EXPECT_EQ(plan.moves[1].direction, Direction::promote);
  EXPECT_EQ(plan.moves[1].trigger, OpId(4));
  EXPECT_NEAR(plan.predicted_step_us, 600, 0.01);
}

// Sizes of 2 and 10 pages. A class each: c's pool needs one slot, the other one; 20 pages leave it
// at one slot and 8 pages of no use, so that a and b take turns. In one class of 10 pages there are
// two slots.
TEST(PoolReplay, ClassesDecideWhatLeaves) {
  const Profile profile = three_tensors(2);
  const auto all = storages(profile);
  const auto gaps = idle_gaps(profile, all, two_tiers(kPage));
  const PoolReplay replay(profile, all, gaps, kPage);
  EXPECT_THAT(replay.sizes(), ElementsAre(2 * kPage, 10 * kPage));
  const Pools apart{{0, 1}, {2 * kPage, 10 * kPage}, {1, 1}}, together{{0, 0}, {10 * kPage}, {2}};
  EXPECT_THAT(replay.used(apart), ElementsAre(1, 1));
  EXPECT_THAT(replay.alive(apart), ElementsAre(1, 2));
  EXPECT_THAT(replay.used(together), ElementsAre(1));
  EXPECT_THAT(replay.alive(together), ElementsAre(3));
  ASSERT_THAT(gaps, SizeIs(3));  // of a, b and c, in this order
  EXPECT_THAT(replay.evictions(apart), ElementsAre(true, false, false));
  EXPECT_THAT(replay.evictions(together), ElementsAre(true, false, false));
  const Pools three{{0, 0}, {10 * kPage}, {3}};
  EXPECT_THAT(replay.evictions(three), ElementsAre(false, false, false));
}

// A weight that only op 1 uses gives its slot to what ops 2 and 3 make, and is back for the next
// step's op 1.
TEST(PoolReplay, WeightsLeaveAcrossTheStepEnd) {
  ProfileBuilder b;
  const TensorId w = b.persistent(kPage), x = b.temporary(kPage, 2, 3),
                 y = b.temporary(kPage, 3, 3);
  b.op(0, 10, {});
  b.op(1, 10, {w});
  b.op(2, 10, {}, {x});
  b.op(3, 10, {x}, {y});
  const auto all = storages(b.profile);
  const auto gaps = idle_gaps(b.profile, all, two_tiers(kPage));
  const PoolReplay replay(b.profile, all, gaps, kPage);
  ASSERT_THAT(gaps, SizeIs(1));
  EXPECT_EQ(gaps[0].next, 5u);
  EXPECT_THAT(replay.evictions({{0}, {kPage}, {2}}), ElementsAre(true));
  EXPECT_THAT(replay.evictions({{0}, {kPage}, {3}}), ElementsAre(false));
}

TEST(SwapAdvisorPolicy, RefusesWhereNoPoolsHoldAnOp) {
  try {
    plan_of(three_tensors(), {.fast_bytes = 8 * kPage});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("need 8.00 KiB more"));
  }
}

TEST(SwapAdvisorPolicy, IsTheSameWithAnyNumberOfThreads) {
  const Profile profile = random_training(6, {.layers = 10});
  const PlanOptions options{
      .fast_bytes = peak_live_bytes(profile) * 7 / 10, .seed = 5, .effort = 5, .time_limit_s = 100};
  const Plan many = plan_of(profile, options);
  const tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
  const Plan single = plan_of(profile, options);
  EXPECT_THAT(verify(many, profile), IsEmpty());
  EXPECT_EQ(many.effort, single.effort);
  EXPECT_EQ(many.predicted_step_us, single.predicted_step_us);
  EXPECT_EQ(many.moves.size(), single.moves.size());
}

}  // namespace
}  // namespace sentinel::plan
