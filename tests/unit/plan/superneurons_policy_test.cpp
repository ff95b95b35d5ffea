#include <gmock/gmock.h>

#include "contract/policy.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint64_t kPage = 4096;

INSTANTIATE_TEST_SUITE_P(SuperNeurons, PolicyContract, ::testing::Values("superneurons"));

Plan plan_of(const Profile& profile, const PlanOptions& options) {
  return dynamic_cast<PlannedPolicy&>(*make_policy("superneurons"))
      .plan(profile, two_tiers(kPage), options);
}

// Two convolutions, each followed by a ReLU; w, c0, r0, c1, r1 of 10 pages, gradients of 4. In
// backward op 4 reads r1, 5 c1, 6 r0, 7 c0. Held: 20, 30, 40, 50, 54, 48, 38, 28 pages.
Profile two_convolutions() {
  ProfileBuilder b;
  const TensorId w = b.persistent(10 * kPage), c0 = b.temporary(10 * kPage, 0, 7),
                 r0 = b.temporary(10 * kPage, 1, 6), c1 = b.temporary(10 * kPage, 2, 5),
                 r1 = b.temporary(10 * kPage, 3, 4), g = b.temporary(4 * kPage, 4, 5),
                 g1 = b.temporary(4 * kPage, 5, 6), g2 = b.temporary(4 * kPage, 6, 7),
                 g3 = b.temporary(4 * kPage, 7, 7);
  b.op(0, 100, {w}, {c0});
  b.op(1, 100, {c0}, {r0});
  b.op(2, 100, {w, r0}, {c1});
  b.op(3, 100, {c1}, {r1});
  b.op(4, 100, {r1}, {g});
  b.op(5, 100, {c1, g}, {g1});
  b.op(6, 100, {r0, g1}, {g2});
  b.op(7, 100, {c0, g2}, {g3});
  const char* names[] = {"conv_forward",  "relu_forward",  "conv_forward",  "relu_forward",
                         "loss_backward", "relu_backward", "conv_backward", "relu_backward"};
  for (std::size_t k = 0; k < 8; ++k) {
    b.profile.ops[k].name = names[k];
    b.profile.ops[k].phase = k < 4 ? Phase::forward : Phase::backward;
  }
  return b.profile;
}

// r0 is made again by op 1 before op 6, so it is away at ops 3 to 5 and 44 pages suffice: the cache
// keeps both convolutions' outputs.
TEST(SuperNeuronsPolicy, RecomputesWhatIsCheapAndKeepsWhatFits) {
  const Profile profile = two_convolutions();
  const Plan plan = plan_of(profile, {.fast_bytes = 44 * kPage});
  EXPECT_THAT(verify(plan, profile), IsEmpty());
  ASSERT_THAT(plan.moves, SizeIs(1));
  EXPECT_EQ(plan.moves[0].direction, Direction::discard);
  EXPECT_EQ(plan.moves[0].tensor, TensorId(2));
  EXPECT_EQ(plan.moves[0].trigger, OpId(2));
  EXPECT_THAT(plan.recomputations,
              ElementsAre(Recompute{.op = OpId(1), .before = OpId(6), .keep = {TensorId(2)}}));
}

// Op 4 has 4 pages too many for 40: the output of the convolution that was used longest ago leaves
// after op 1. It comes back at the convolution before its use, op 6, where r0 is made from it.
TEST(SuperNeuronsPolicy, OffloadsTheLeastRecentlyUsedConvolution) {
  const Profile profile = two_convolutions();
  const Plan plan = plan_of(profile, {.fast_bytes = 40 * kPage});
  EXPECT_THAT(verify(plan, profile), IsEmpty());
  ASSERT_THAT(plan.moves, SizeIs(3));
  EXPECT_EQ(plan.moves[0].tensor, TensorId(1));
  EXPECT_EQ(plan.moves[0].direction, Direction::demote);
  EXPECT_EQ(plan.moves[0].trigger, OpId(1));
  EXPECT_EQ(plan.moves[2].tensor, TensorId(1));
  EXPECT_EQ(plan.moves[2].direction, Direction::promote);
  EXPECT_EQ(plan.moves[2].trigger, OpId(6));
  EXPECT_THAT(plan.recomputations, SizeIs(1));
}

TEST(SuperNeuronsPolicy, OffloadsEveryConvolutionWithoutItsCache) {
  const Profile profile = two_convolutions();
  const Plan plan = plan_of(profile, {.fast_bytes = 44 * kPage, .without = {"tensor-cache"}});
  EXPECT_THAT(verify(plan, profile), IsEmpty());
  EXPECT_EQ(std::ranges::count(plan.moves, Direction::demote, &Move::direction), 2);
}

TEST(SuperNeuronsPolicy, OffloadsAllWhereReplaysAreForbidden) {
  const Profile profile = two_convolutions();
  const Plan plan = plan_of(profile, {.fast_bytes = 40 * kPage, .recompute = false});
  EXPECT_THAT(verify(plan, profile), IsEmpty());
  EXPECT_THAT(plan.recomputations, IsEmpty());
}

// Op 2 alone uses 30 pages.
TEST(SuperNeuronsPolicy, RefusesWhatItCannotFit) {
  EXPECT_THROW(plan_of(two_convolutions(), {.fast_bytes = 28 * kPage}), Error);
}

}  // namespace
}  // namespace sentinel::plan
