#include <gmock/gmock.h>

#include "contract/policy.h"
#include "plan/check/verify.h"
#include "plan/gaps/channel.h"
#include "plan/step/op_times.h"
#include "sentinel/policy.h"
#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Optional;
using ::testing::SizeIs;

constexpr std::uint64_t kPage = 4096;

INSTANTIATE_TEST_SUITE_P(Tensile, PolicyContract, ::testing::Values("tensile"));

// A page takes so many us either way.
Machine pages_take(double us) {
  Machine m = two_tiers(kPage);
  m.tiers[1].read_bw = m.tiers[1].write_bw = kPage / (us * 1e-6);
  return m;
}

PlannedPolicy& tensile() {
  static const auto policy = make_policy("tensile");
  return dynamic_cast<PlannedPolicy&>(*policy);
}

struct Trigger {
  std::uint32_t tensor;
  Direction direction;
  std::uint32_t op;
  double delay_us;
  std::uint32_t deadline;
  friend bool operator==(const Trigger&, const Trigger&) = default;
};
std::vector<Trigger> triggers(const Plan& plan) {
  std::vector<Trigger> all;
  for (const Move& m : plan.moves)
    all.push_back(
        {m.tensor.value, m.direction, m.trigger.value, std::round(m.delay_us), m.deadline.value});
  return all;
}

// Six ops of 100 us, a page takes 10 us:
//   op        0    1    2    3    4    5
//   a (5)     w                        r
//   b (4)          w                   r
//   c (10)              w    r
// Held: 5 9 19 19 9 9 pages. The peak, last at op 3, has a and b idle; a is larger. Out at once
// after op 0, [100, 150]; in as late as can be before op 5, [450, 500]: triggered by op 4 and 50
// us. Then b: out [200, 240] behind op 1; in before op 5, but the channel is taken from 450 on:
// [410, 450], op 4 and 10 us. a is away at ops 2 and 3, b, still being written during op 2, at op
// 3: held 5 9 14 10 9 9.
Profile two_idle() {
  ProfileBuilder b;
  const TensorId a = b.temporary(5 * kPage, 0, 5), x = b.temporary(4 * kPage, 1, 5),
                 c = b.temporary(10 * kPage, 2, 3);
  b.op(0, 100, {}, {a});
  b.op(1, 100, {}, {x});
  b.op(2, 100, {}, {c});
  b.op(3, 100, {c});
  b.op(4, 100, {});
  b.op(5, 100, {a, x});
  return b.profile;
}

TEST(TensilePolicy, LowersThePeakAsFarAsNothingWaits) {
  const Profile profile = two_idle();
  const Plan plan = tensile().plan(profile, pages_take(10), {.fast_bytes = 100 * kPage});
  EXPECT_THAT(triggers(plan), ElementsAre(Trigger{0, Direction::demote, 0, 0, 1},
                                          Trigger{1, Direction::demote, 1, 0, 2},
                                          Trigger{1, Direction::promote, 4, 10, 5},
                                          Trigger{0, Direction::promote, 4, 50, 5}));
  EXPECT_EQ(plan.peak_fast_bytes, 14 * kPage);
  EXPECT_EQ(plan.predicted_step_us, 600);
  EXPECT_THAT(verify(plan, profile), IsEmpty());
}

// With 16 pages a alone is enough: 5 9 14 14 9 9.
TEST(TensilePolicy, StopsAtTheBudgetIfToldTo) {
  const Plan plan = tensile().plan(two_idle(), pages_take(10),
                                   {.fast_bytes = 16 * kPage, .without = {"below-budget"}});
  EXPECT_THAT(triggers(plan), ElementsAre(Trigger{0, Direction::demote, 0, 0, 1},
                                          Trigger{0, Direction::promote, 4, 50, 5}));
}

// A page takes 20 us: a is out [100, 200] and in [400, 500], which fills op 4. b could be written
// in time, [200, 280], but not come back after the peak: it stays.
TEST(TensilePolicy, LeavesWhatTheChannelHasNoTimeFor) {
  const Plan plan = tensile().plan(two_idle(), pages_take(20), {.fast_bytes = 100 * kPage});
  EXPECT_THAT(triggers(plan), ElementsAre(Trigger{0, Direction::demote, 0, 0, 1},
                                          Trigger{0, Direction::promote, 4, 0, 5}));
}

// w (10 pages, used by ops 2 and 4) idles over the step's end while op 7 needs t: out [500, 600],
// in before op 2 of the next step, [900, 1000] = op 1.
TEST(TensilePolicy, SwapsOverTheStepsEnd) {
  ProfileBuilder b;
  const TensorId w = b.persistent(10 * kPage), t = b.temporary(10 * kPage, 7, 7);
  for (std::uint32_t k = 0; k < 8; ++k) {
    std::vector<TensorId> in, out;
    if (k == 2) in = {w};
    if (k == 4) in = out = {w};
    if (k == 7) out = {t};
    b.op(k, 100, in, out);
  }
  const Plan plan = tensile().plan(b.profile, pages_take(10), {.fast_bytes = 100 * kPage});
  EXPECT_THAT(triggers(plan), ElementsAre(Trigger{0, Direction::promote, 1, 0, 2},
                                          Trigger{0, Direction::demote, 4, 0, 5}));
  EXPECT_EQ(plan.peak_fast_bytes, 10 * kPage);
  EXPECT_THAT(verify(plan, b.profile), IsEmpty());
  const Plan within = tensile().plan(b.profile, pages_take(10),
                                     {.fast_bytes = 100 * kPage, .without = {"across-steps"}});
  EXPECT_THAT(within.moves, IsEmpty());
}

// w is read by ops 0, 4, 8 and written by none: the host's copy is good for ever, and going away
// costs nothing. Peak with t at op 2: w out at once, in before op 4, [300, 400] = op 3; then in the
// other gap, too, for nothing but the way back, [700, 800] = op 7.
TEST(TensilePolicy, KeepsCopiesInTheHost) {
  ProfileBuilder b;
  const TensorId w = b.persistent(10 * kPage), t = b.temporary(10 * kPage, 2, 2);
  for (std::uint32_t k = 0; k < 9; ++k)
    b.op(k, 100, k % 4 == 0 ? std::vector{w} : std::vector<TensorId>{},
         k == 2 ? std::vector{t} : std::vector<TensorId>{});
  const Plan plan = tensile().plan(b.profile, pages_take(10), {.fast_bytes = 100 * kPage});
  EXPECT_THAT(
      triggers(plan),
      ElementsAre(Trigger{0, Direction::demote, 0, 0, 1}, Trigger{0, Direction::promote, 3, 0, 4},
                  Trigger{0, Direction::demote, 4, 0, 5}, Trigger{0, Direction::promote, 7, 0, 8}));
}

// A page takes 1 ms, so that nothing is swapped in time. a (5 pages) is made from w (1 page) at op
// 0 and read at op 5; c (10 pages) lives at ops 2 and 3. 16 pages at the peak, 12 are allowed: a is
// given up and made again.
Profile remade() {
  ProfileBuilder b;
  const TensorId w = b.persistent(kPage), a = b.temporary(5 * kPage, 0, 5),
                 c = b.temporary(10 * kPage, 2, 3);
  b.op(0, 100, {w}, {a});
  b.op(1, 100, {});
  b.op(2, 100, {}, {c});
  b.op(3, 100, {c});
  b.op(4, 100, {});
  b.op(5, 100, {a});
  return b.profile;
}

TEST(TensilePolicy, RecomputesWhereSwappingIsNotEnough) {
  const Profile profile = remade();
  const Plan plan = tensile().plan(profile, pages_take(1000), {.fast_bytes = 12 * kPage});
  EXPECT_THAT(triggers(plan), ElementsAre(Trigger{1, Direction::discard, 0, 0, 0}));
  EXPECT_THAT(plan.recomputations, ElementsAre(Recompute{OpId(0), OpId(5), {TensorId(1)}}));
  EXPECT_EQ(plan.peak_fast_bytes, 11 * kPage);
  EXPECT_EQ(plan.predicted_step_us, 700);
  EXPECT_THAT(verify(plan, profile), IsEmpty());
}

// Where replays are forbidden, a waits for both its ways.
TEST(TensilePolicy, WaitsWhereNothingElseHelps) {
  const Profile profile = remade();
  const Plan plan =
      tensile().plan(profile, pages_take(1000), {.fast_bytes = 12 * kPage, .recompute = false});
  EXPECT_THAT(plan.recomputations, IsEmpty());
  EXPECT_THAT(triggers(plan), ElementsAre(Trigger{1, Direction::demote, 0, 0, 1},
                                          Trigger{1, Direction::promote, 5, 0, 5}));
  EXPECT_THAT(verify(plan, profile), IsEmpty());
}

// Two jobs of the first example, each at half speed: ops of 200 us. The first job's a is out [200,
// 250] and in [950, 1000], the second's behind it and before it: [250, 300] and [900, 950].
TEST(TensilePolicy, JobsShareTheChannelAndTheBudget) {
  const Profile profile = two_idle();
  const PlannedJob job{.profile = &profile};
  const std::vector<PlannedJob> jobs{job, job};
  const auto plans = tensile().plan_jobs(jobs, pages_take(10), {.fast_bytes = 40 * kPage});
  ASSERT_THAT(plans, SizeIs(2));
  EXPECT_LE(plans[0].fast_bytes + plans[1].fast_bytes, 40 * kPage);
  for (const Plan& plan : plans) EXPECT_THAT(verify(plan, profile), IsEmpty());
  const auto first = triggers(plans[0]), second = triggers(plans[1]);
  EXPECT_THAT(first, ::testing::Contains(Trigger{0, Direction::demote, 0, 0, 1}));
  EXPECT_THAT(first, ::testing::Contains(Trigger{0, Direction::promote, 4, 150, 5}));
  EXPECT_THAT(second, ::testing::Contains(Trigger{0, Direction::demote, 0, 50, 1}));
  EXPECT_THAT(second, ::testing::Contains(Trigger{0, Direction::promote, 4, 100, 5}));
}

TEST(TensilePolicy, AJobWithoutAShareIsLeftAlone) {
  const Profile profile = two_idle();
  const std::vector<PlannedJob> jobs{{.profile = &profile, .swap_share = 0}, {.profile = &profile}};
  const auto plans = tensile().plan_jobs(jobs, pages_take(10), {.fast_bytes = 100 * kPage});
  EXPECT_THAT(plans[0].moves, IsEmpty());
  EXPECT_THAT(plans[1].moves, Not(IsEmpty()));
}

// A job that has not run takes the times of ops of the same name and size in the other one.
TEST(TensilePolicy, PredictsJobsThatHaveNotRun) {
  Profile known = two_idle();
  for (Op& op : known.ops) op.name = "gemm";
  Profile unknown = known;
  for (Op& op : unknown.ops) op.us = 0;
  const std::vector<PlannedJob> jobs{{.profile = &known}, {.profile = &unknown}};
  const auto plans = tensile().plan_jobs(jobs, pages_take(10), {.fast_bytes = 100 * kPage});
  EXPECT_THAT(plans[1].moves, Not(IsEmpty()));
}

// What a controller says in one step.
std::vector<Move> one_step(Controller& controller, std::size_t ops) {
  std::vector<Move> moves;
  for (std::uint32_t k = 0; k < ops; ++k) {
    controller.op_start(OpId(k), moves);
    controller.op_end(OpId(k), moves);
  }
  return moves;
}

// Ops said to take 1 us leave no time to swap. They turn out to take 500: their average is above
// 250 after one step, and the plan made then, in use from the next step on, swaps.
TEST(TensilePolicy, PlansAnewWhereTimesDrift) {
  Profile profile = two_idle();
  for (Op& op : profile.ops) op.us = 1;
  const PlannedJob job{.profile = &profile};
  const PlanOptions options{.fast_bytes = 100 * kPage};
  auto plans = tensile().plan_jobs({&job, 1}, pages_take(10), options);
  EXPECT_THAT(plans.front().moves, IsEmpty());
  const auto controllers = tensile().control_jobs({&job, 1}, plans, pages_take(10), options);
  EXPECT_THAT(one_step(*controllers[0], 6), IsEmpty());
  controllers[0]->step_end(std::vector<double>(6, 500), false);
  EXPECT_THAT(one_step(*controllers[0], 6), SizeIs(4));
}

// Alone the first job has the channel for itself; once the second one begins it is planned for
// half speed, and again alone when the second one has gone.
TEST(TensilePolicy, PlansAnewWhenJobsComeAndGo) {
  const Profile profile = two_idle();
  const std::vector<PlannedJob> jobs{{.profile = &profile}, {.profile = &profile, .start_us = 1e6}};
  const PlanOptions options{.fast_bytes = 100 * kPage};
  auto plans = tensile().plan_jobs(jobs, pages_take(10), options);
  const auto controllers = tensile().control_jobs(jobs, std::move(plans), pages_take(10), options);
  const auto delay = [&](Controller& c) {
    double last = 0;
    for (const Move& m : one_step(c, 6))
      if (m.tensor == TensorId(0) && m.direction == Direction::promote) last = m.delay_us;
    return std::round(last);
  };
  EXPECT_EQ(delay(*controllers[0]), 50);
  one_step(*controllers[1], 6);
  EXPECT_EQ(delay(*controllers[0]), 150);
  controllers[1]->step_end(std::vector<double>(6, 200), true);
  EXPECT_EQ(delay(*controllers[0]), 50);
}

TEST(TensileChannel, OneTransferAtATime) {
  tensile::Channel channel(std::vector<tensile::Channel::Job>{{.step_us = 1000}});
  channel.book(0, 100, 50);
  EXPECT_THAT(channel.earliest(0, 100, 300, 40), Optional(DoubleNear(150, 1e-3)));
  EXPECT_THAT(channel.latest(0, 0, 140, 40), Optional(DoubleNear(60, 1e-3)));
  EXPECT_EQ(channel.earliest(0, 80, 170, 40), std::nullopt);
  // The next step's transfers are the same ones.
  EXPECT_THAT(channel.latest(0, 1000, 1160, 20), Optional(DoubleNear(1080, 1e-3)));
}

// A step half as long comes round twice.
TEST(TensileChannel, ShorterStepsRepeat) {
  tensile::Channel channel(
      std::vector<tensile::Channel::Job>{{.step_us = 1000}, {.start_us = 20, .step_us = 500}});
  channel.book(1, 80, 50);  // taken: [100, 150] and [600, 650]
  EXPECT_THAT(channel.earliest(0, 590, 900, 20), Optional(DoubleNear(650, 1e-3)));
  EXPECT_THAT(channel.earliest(1, 70, 400, 20), Optional(DoubleNear(130, 1e-3)));
}

TEST(AveragedTimes, AverageWhatIsMeasured) {
  AveragedTimes times({100, 200});
  times.measured(std::vector<double>{120, 200});
  EXPECT_THAT(times.us(), ElementsAre(110, 200));
  EXPECT_NEAR(times.drift(), 10.0 / 300, 1e-12);
  EXPECT_FALSE(times.drifted());
  times.measured(std::vector<double>{200, 200});
  EXPECT_THAT(times.us(), ElementsAre(155, 200));
  EXPECT_TRUE(times.drifted());
  times.plan_made();
  EXPECT_FALSE(times.drifted());
  times.measured(std::vector<double>{1});  // of another graph
  EXPECT_THAT(times.us(), ElementsAre(155, 200));
}

// us = sqrt(bytes read): learnt from a hundred sizes, predicted for one between them.
TEST(TimePredictor, FindsAPowerOfTheSize) {
  ProfileBuilder b;
  for (std::uint32_t i = 1; i <= 100; ++i) {
    const double bytes = 1e4 * i;
    b.op(0, std::sqrt(bytes), {b.persistent(static_cast<std::uint64_t>(bytes))});
    b.profile.ops.back().name = "gemm";
  }
  TimePredictor predictor;
  predictor.learn(b.profile);
  ProfileBuilder other;
  other.op(0, 0, {other.persistent(250'000)});
  other.profile.ops.back().name = "gemm";
  EXPECT_NEAR(predictor.us(other.profile, other.profile.ops[0], two_tiers(kPage)), 500, 5);
}

TEST(TimePredictor, KnowsFastMemoryWhereItHasLearntNothing) {
  ProfileBuilder b;
  b.op(0, 0, {b.persistent(100'000'000)});
  EXPECT_NEAR(TimePredictor().us(b.profile, b.profile.ops[0], two_tiers(kPage)), 1000, 1e-6);
}

}  // namespace
}  // namespace sentinel::plan
