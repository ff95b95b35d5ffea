// FlashNeuron, LMS and the ideal.
#include <gmock/gmock.h>

#include "plan/check/verify.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "unit/plan/profiles.h"
#include "unit/plan/swaps.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr std::uint64_t kPage = 4096;

// a, b and c of 10 pages are made by ops 0, 1 and 2; op 3 makes a page of loss; the backward pass,
// from op 4 on, reads the loss with c, then b, then a. Held, in pages: 10, 20, 30, 31, 31, 20, 10.
Profile three_layers(std::uint64_t weight_pages = 0) {
  ProfileBuilder b;
  const TensorId a = b.temporary(10 * kPage, 0, 6), x = b.temporary(10 * kPage, 1, 5),
                 c = b.temporary(10 * kPage, 2, 4), loss = b.temporary(kPage, 3, 4);
  in_order(b,
           {{{}, {a}}, {{}, {x}}, {{}, {c}}, {{}, {loss}}, {{c, loss}, {}}, {{x}, {}}, {{a}, {}}});
  for (std::size_t k = 4; k < b.profile.ops.size(); ++k) b.profile.ops[k].phase = Phase::backward;
  if (weight_pages > 0) b.persistent(weight_pages * kPage);
  return b.profile;
}

Plan planned(std::string_view policy, const Profile& profile, std::uint64_t pages) {
  const Plan plan = plan_of(policy, profile, host_and_ssd(), {.fast_bytes = pages * kPage});
  EXPECT_THAT(verify(plan, profile), IsEmpty());
  return plan;
}

// 30 pages. What stays is the largest op's 11 pages and the 31 that cross into the backward pass:
// a and then b have to go before 22 are left. Fetches leave the 11 pages of the largest op free, so
// that 19 may be held: with b's 10, op 4 would hold 21, and op 5 20 with a.
TEST(FlashNeuron, OffloadsInOrderAndFetchesWhereTheLargestOpLeavesRoom) {
  EXPECT_THAT(swaps(planned("flashneuron", three_layers(), 30)),
              UnorderedElementsAre("0 out 0 to 2", "1 out 1 to 2", "5 in 1 by 5", "6 in 0 by 6"));
}

TEST(FlashNeuron, FailsWhereWeightsTakeTheMemory) {
  EXPECT_THAT([] { planned("flashneuron", three_layers(20), 30); },
              ::testing::ThrowsMessage<Error>(HasSubstr("flashneuron offloads only")));
}

// 30 pages. Ops 3 and 4 hold 31. With a threshold of 5 a alone is swapped (6 ops apart), with 6
// nothing; it may come back one op ahead, at op 5, not at op 4.
TEST(Lms, TakesTheLargestThresholdAndAheadThatFit) {
  EXPECT_THAT(swaps(planned("lms", three_layers(), 30)),
              UnorderedElementsAre("0 out 0 to 1", "5 in 0 by 6"));
}

// 20 pages. Without a, ops 3 and 4 still hold 21: b, 4 ops apart, has to go too, c, 2 apart, not.
// Neither may come back early: op 4 would hold 21, and b itself is back at op 5.
TEST(Lms, SwapsMoreWithLess) {
  EXPECT_THAT(swaps(planned("lms", three_layers(), 20)),
              UnorderedElementsAre("0 out 0 to 1", "1 out 1 to 1", "6 in 0 by 6", "5 in 1 by 5"));
}

TEST(Lms, FailsWhereVariablesTakeTheMemory) {
  EXPECT_THAT([] { planned("lms", three_layers(20), 30); },
              ::testing::ThrowsMessage<Error>(HasSubstr("lms does not swap variables")));
}

TEST(Ideal, IgnoresTheBudget) {
  const Plan plan = planned("ideal", three_layers(), 1);
  EXPECT_THAT(plan.moves, IsEmpty());
  EXPECT_EQ(plan.fast_bytes, 31 * kPage);
}

TEST(SwappingBaselines, PlansOfAnyGraphVerifyOrSayWhatIsTooMuch) {
  int planned_ones = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Profile profile = random_graph(seed);
    for (std::size_t k = profile.ops.size() / 2; k < profile.ops.size(); ++k)
      profile.ops[k].phase = Phase::backward;
    for (const std::uint64_t share : {50, 75, 90})
      for (const char* policy : {"flashneuron", "lms"}) {
        const PlanOptions options{.fast_bytes = peak_live_bytes(profile) * share / 100};
        try {
          const Plan plan = plan_of(policy, profile, host_and_ssd(), options);
          EXPECT_THAT(verify(plan, profile), IsEmpty()) << policy << seed << ' ' << share;
          planned_ones += plan.moves.empty() ? 0 : 1;
        } catch (const Error& e) {
          EXPECT_THAT(e.what(), ::testing::AnyOf(HasSubstr("at once"), HasSubstr("still holds")));
        }
      }
  }
  EXPECT_GT(planned_ones, 50);
}

}  // namespace
}  // namespace sentinel::plan
