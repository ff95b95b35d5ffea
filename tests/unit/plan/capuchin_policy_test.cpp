#include <gmock/gmock.h>

#include "contract/policy.h"
#include "plan/check/verify.h"
#include "sentinel/policy.h"
#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint64_t kPage = 4096;

INSTANTIATE_TEST_SUITE_P(Capuchin, PolicyContract, ::testing::Values("capuchin"));

Machine pages_take(double us) {
  Machine m = two_tiers(kPage);
  m.tiers[1].read_bw = m.tiers[1].write_bw = kPage / (us * 1e-6);
  return m;
}

Plan capuchin_plan(const Profile& profile, const Machine& machine, PlanOptions options) {
  const auto policy = make_policy("capuchin");
  Plan plan = dynamic_cast<PlannedPolicy&>(*policy).plan(profile, machine, options);
  EXPECT_THAT(verify(plan, profile), IsEmpty());
  return plan;
}

// Six ops of 100 us; a, b, c of 10 pages each, made from w (1 page):
//   op   0    1    2    3    4    5
//   a    w                        r
//   b         w         r
//   c              w         r
// Held: 11 21 31 31 21 11 pages, w in them.
Profile three_tensors() {
  ProfileBuilder b;
  const TensorId w = b.persistent(kPage);
  const TensorId a = b.temporary(10 * kPage, 0, 5), x = b.temporary(10 * kPage, 1, 3),
                 c = b.temporary(10 * kPage, 2, 4);
  b.op(0, 100, {w}, {a});
  b.op(1, 100, {w}, {x});
  b.op(2, 100, {w}, {c});
  b.op(3, 100, {w, x});
  b.op(4, 100, {w, c});
  b.op(5, 100, {w, a});
  return b.profile;
}

// A page takes 5 us, a tensor 50. 21 pages: ops 2 and 3 hold too much. Free times: a, from the end
// of its way out, 150, to the beginning of its way in, 450: 300; b 250 to 250: 0; c 350 to 350: 0.
// a alone is enough. Its way in begins at 450: the access before is op 4.
TEST(CapuchinPolicy, SwapsWhatHasMostFreeTime) {
  const Plan plan = capuchin_plan(three_tensors(), pages_take(5), {.fast_bytes = 21 * kPage});
  ASSERT_THAT(plan.moves, SizeIs(2));
  EXPECT_EQ(plan.moves[0].tensor, TensorId(1));
  EXPECT_EQ(plan.moves[0].direction, Direction::demote);
  EXPECT_EQ(plan.moves[0].trigger, OpId(0));
  EXPECT_EQ(plan.moves[1].direction, Direction::promote);
  EXPECT_EQ(plan.moves[1].trigger, OpId(4));
  EXPECT_EQ(plan.moves[1].deadline, OpId(5));
  EXPECT_THAT(plan.recomputations, IsEmpty());
}

// A page takes 1 ms: a swap of a would cost 20,000 - 400 = 19,600 us, making it again 100. All
// three save as much memory per second; a is the first, and enough.
TEST(CapuchinPolicy, RecomputesWhereThatIsCheaper) {
  const Plan plan = capuchin_plan(three_tensors(), pages_take(1000), {.fast_bytes = 21 * kPage});
  EXPECT_THAT(plan.recomputations, ElementsAre(Recompute{OpId(0), OpId(5), {TensorId(1)}}));
  ASSERT_THAT(plan.moves, SizeIs(1));
  EXPECT_EQ(plan.moves[0].direction, Direction::discard);
  EXPECT_EQ(plan.predicted_step_us, 700);
}

TEST(CapuchinPolicy, SwapsAloneWhereReplaysAreForbidden) {
  for (const PlanOptions& options :
       {PlanOptions{.fast_bytes = 21 * kPage, .recompute = false},
        PlanOptions{.fast_bytes = 21 * kPage, .without = {"recompute"}}}) {
    const Plan plan = capuchin_plan(three_tensors(), pages_take(1000), options);
    EXPECT_THAT(plan.recomputations, IsEmpty());
    EXPECT_THAT(plan.moves, SizeIs(2));
  }
}

// a idles at op 2, where b and c are needed, too; op 4 takes 50 us, so that the way in, which takes
// as long, begins with op 4. The judge says that op 5 waited then: a twentieth of 50 us earlier is
// op 3, and nothing waits.
TEST(CapuchinPolicy, BringsBackEarlierWhatCameLate) {
  ProfileBuilder b;
  const TensorId w = b.persistent(kPage);
  const TensorId a = b.temporary(10 * kPage, 0, 5), x = b.temporary(10 * kPage, 1, 2),
                 c = b.temporary(10 * kPage, 2, 4);
  b.op(0, 100, {w}, {a});
  b.op(1, 100, {w}, {x});
  b.op(2, 100, {w, x}, {c});
  b.op(3, 100, {w, c});
  b.op(4, 50, {w, c});
  b.op(5, 100, {w, a});
  const Profile& profile = b.profile;
  int judged = 0;
  PlanOptions options{.fast_bytes = 30 * kPage};
  options.judge = [&](const Profile& p, const Machine&, const Plan& plan) {
    ++judged;
    Verdict v{.step_us = 550, .op_stall_us = std::vector<double>(p.ops.size(), 0)};
    for (const Move& m : plan.moves)
      if (m.direction == Direction::promote && m.trigger == OpId(4)) {
        v.op_stall_us[5] = 7;
        v.step_us += 7;
      }
    return v;
  };
  const Plan plan = capuchin_plan(profile, pages_take(5), options);
  EXPECT_EQ(judged, 2);
  EXPECT_EQ(plan.effort, 2u);
  EXPECT_EQ(plan.predicted_step_us, 550);
  ASSERT_THAT(plan.moves, SizeIs(2));
  EXPECT_EQ(plan.moves[1].trigger, OpId(3));
}

}  // namespace
}  // namespace sentinel::plan
