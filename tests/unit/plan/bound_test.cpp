#include "plan/bound/bound.h"

#include <gmock/gmock.h>

#include <limits>

#include "plan/bound/bound_model.h"
#include "plan/solver/linear_program.h"
#include "plan/step/replay_cost.h"
#include "sentinel/analysis.h"
#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kPage = 4096;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One page takes 10 us either way.
Machine slow_link() {
  Machine m = two_tiers(64);
  m.tiers[1].read_bw = m.tiers[1].write_bw = kPage / 10e-6;
  return m;
}

// x (10 pages) is made by op 0 and read by op 4; op 2 needs y and z, 10 pages together. Every op
// takes 20 us.
Profile one_gap() {
  ProfileBuilder b;
  const TensorId x = b.temporary(10 * kPage, 0, 4), y = b.temporary(6 * kPage, 2, 2),
                 z = b.temporary(4 * kPage, 2, 2);
  b.op(0, 20, {}, {x});
  b.op(1, 20, {});
  b.op(2, 20, {}, {y, z});
  b.op(3, 20, {});
  b.op(4, 20, {x});
  return b.profile;
}

// Room for 15 pages and 256 bytes: 5 pages of x less 256 bytes have to be away during op 2. Space
// is asked for when op 2 ends, so they may be copied out while ops 1 and 2 compute, 40 us of
// the 49.4 that it takes, and come back during what ends with op 4, 40 us again.
TEST(Bound, OneGapByHand) {
  const Bound bound =
      lower_bound(one_gap(), slow_link(), {.fast_bytes = 15 * kPage + 256, .buckets = 5});
  const double away = 5 - 256.0 / kPage;  // pages
  const double expected = 100 + (away * 10 - 40) + (away * 10 - 40);
  EXPECT_THAT(bound.step_us, DoubleNear(expected, 1e-3));
  EXPECT_TRUE(bound.exact);
  ASSERT_THAT(bound.gaps, ::testing::SizeIs(1));
  EXPECT_EQ(bound.gaps[0].use, 0u);
  EXPECT_EQ(bound.gaps[0].next, 4u);
  EXPECT_THAT(bound.gaps[0].evicted, ElementsAre(DoubleNear(away / 10, 1e-6)));
  EXPECT_EQ(bound.gaps[0].recomputed, 0);
}

// On a link that hides all of it, the bytes still take processor time, out and in.
TEST(Bound, WhatMovesTakesProcessorTime) {
  Machine machine = slow_link();
  machine.tiers[1].read_bw = machine.tiers[1].write_bw = kPage / 1e-6;
  const BoundOptions options{.fast_bytes = 15 * kPage + 256, .buckets = 5};
  EXPECT_THAT(lower_bound(one_gap(), machine, options).step_us, DoubleNear(100, 1e-3));
  const double away = 5 - 256.0 / kPage;        // pages
  machine.cpu_s_per_gb = 1e-7 / (kPage / 1e9);  // 0.1 us a page
  EXPECT_THAT(lower_bound(one_gap(), machine, options).step_us,
              DoubleNear(100 + 2 * away * 0.1, 1e-3));
  machine.cpu_s_per_gb *= 1000;  // ops keep a twentieth: a page of the two a us takes 0.475 us
  EXPECT_THAT(lower_bound(one_gap(), machine, options).step_us,
              DoubleNear(100 + 2 * away * 0.475, 1e-3));
}

// An op of 20 us over 15 pages, in room for 10: 5 pages pass. Only read, they come within 50 us.
// Only updated, they also leave within 50 us, at once or in turn. What is read passes first.
TEST(Bound, AnOpThatDoesNotFitTakesTheTimeOfWhatPasses) {
  const auto bound_us = [](std::uint64_t read, std::uint64_t updated, const Machine& machine) {
    ProfileBuilder b;
    const TensorId r = b.persistent(read * kPage), u = b.persistent(updated * kPage);
    b.op(0, 20, {r, u}, {u});
    b.op(1, 20, {});
    return lower_bound(b.profile, machine, {.fast_bytes = 10 * kPage, .buckets = 5}).step_us;
  };
  Machine machine = slow_link();
  EXPECT_THAT(bound_us(14, 1, machine), DoubleNear(70, 1e-3));
  EXPECT_THAT(bound_us(1, 14, machine), DoubleNear(70, 1e-3));
  machine.links = {{.name = "drive", .bw = kPage / 10e-6, .tiers = {"slow"}, .half_duplex = true}};
  EXPECT_THAT(bound_us(14, 1, machine), DoubleNear(70, 1e-3));
  EXPECT_THAT(bound_us(1, 14, machine), DoubleNear(110, 1e-3));
  machine.cpu_s_per_gb = 20e3 / kPage;  // 20 us a page
  // No more flows than the link carries, and ops keep a twentieth of the processors.
  EXPECT_THAT(bound_us(14, 1, machine), DoubleNear(40 + 5 * 0.95 * 10, 1e-3));
  machine.cpu_s_per_gb /= 4;
  EXPECT_THAT(bound_us(14, 1, machine), DoubleNear(70, 1e-3));
}

TEST(Bound, NothingWaitsWhereEverythingFits) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const Profile profile = random_training(seed);
    const Bound bound = lower_bound(profile, slow_link(), {.fast_bytes = peak_live_bytes(profile)});
    EXPECT_EQ(bound.step_us, ideal_us(profile));
    EXPECT_EQ(bound.buckets, 0u);
    EXPECT_THAT(bound.gaps, IsEmpty());
  }
}

// A weight that is read once a step and never written needs no copy; one that is updated needs one
// copy a step. Room for one of both: op 0 needs v, op 2 needs w, 10 pages each.
TEST(Bound, WhatIsNeverWrittenIsCopiedOnce) {
  const auto two_weights = [](bool updated) {
    ProfileBuilder b;
    const TensorId v = b.persistent(10 * kPage), w = b.persistent(10 * kPage);
    b.op(0, 5, {v}, updated ? std::vector{v} : std::vector<TensorId>{});
    b.op(1, 5, {});
    b.op(2, 5, {w}, updated ? std::vector{w} : std::vector<TensorId>{});
    b.op(3, 5, {});
    return b.profile;
  };
  // Writing is slow, so that copies take longer than fetches.
  Machine machine = slow_link();
  machine.tiers[1].write_bw /= 10;
  const BoundOptions options{.fast_bytes = 10 * kPage + 256, .buckets = 4};
  const double fetches = lower_bound(two_weights(false), machine, options).step_us;
  const double copies = lower_bound(two_weights(true), machine, options).step_us;
  EXPECT_THAT(fetches, DoubleNear(200, 2));   // 20 pages in at 10 us
  EXPECT_THAT(copies, DoubleNear(2000, 15));  // 20 pages out at 100 us

  machine = slow_link();
  EXPECT_THAT(lower_bound(two_weights(true), machine, options).step_us, DoubleNear(200, 4));
  machine.links = {{.name = "drive",
                    .bw = kPage / 10e-6,
                    .tiers = {machine.tiers[1].name},
                    .half_duplex = true}};
  EXPECT_THAT(lower_bound(two_weights(true), machine, options).step_us, DoubleNear(400, 4));
  // A drive that writes twice as fast, and does one thing at a time.
  machine.tiers[1].write_bw *= 2;
  machine.links[0].bw *= 2;
  EXPECT_THAT(lower_bound(two_weights(true), machine, options).step_us, DoubleNear(300, 4));
}

// x is read three times; between its uses others need the room. The second eviction is free, but on
// exclusive tiers.
TEST(Bound, CleanContentsLeaveForNothing) {
  ProfileBuilder b;
  const TensorId x = b.temporary(10 * kPage, 0, 6), y = b.temporary(10 * kPage, 1, 2),
                 z = b.temporary(10 * kPage, 4, 5);
  b.op(0, 1, {}, {x});
  b.op(1, 1, {}, {y});
  b.op(2, 1, {y});
  b.op(3, 1, {x});
  b.op(4, 1, {}, {z});
  b.op(5, 1, {z});
  b.op(6, 1, {x});
  Machine machine = slow_link();
  machine.tiers[1].read_bw *= 1000;
  const Bound bound = lower_bound(b.profile, machine, {.fast_bytes = 10 * kPage + 256});
  EXPECT_THAT(bound.step_us, DoubleNear(100, 8));  // one copy of 10 pages, not two
  EXPECT_THAT(bound.gaps, ::testing::SizeIs(2));
  machine.exclusive = true;
  EXPECT_THAT(lower_bound(b.profile, machine, {.fast_bytes = 10 * kPage + 256}).step_us,
              DoubleNear(200, 8));
}

// Nothing is fetched for an op that overwrites it, nor copied.
TEST(Bound, WhatIsOverwrittenMayBeForgotten) {
  ProfileBuilder b;
  const TensorId x = b.temporary(10 * kPage, 0, 3), y = b.temporary(10 * kPage, 1, 2);
  b.op(0, 1, {}, {x});
  b.op(1, 1, {}, {y});
  b.op(2, 1, {y});
  b.op(3, 1, {}, {x});
  const Bound bound = lower_bound(b.profile, slow_link(), {.fast_bytes = 10 * kPage + 256});
  EXPECT_EQ(bound.step_us, ideal_us(b.profile));
}

// The same 5 pages, but a faster tier takes 3 of them: 2 go to the slow one, at ten times the time.
TEST(Bound, TiersAreLimitedApart) {
  Machine machine = slow_link();
  machine.tiers.insert(machine.tiers.begin() + 1, {.name = "middle", .capacity = 3 * kPage});
  machine.tiers[1].read_bw = machine.tiers[1].write_bw = kPage / 1e-6;
  machine.tiers[2].read_bw = machine.tiers[2].write_bw = kPage / 100e-6;
  const std::uint64_t budget = 15 * kPage + 256;
  const double away = 2 - 256.0 / kPage;  // pages in the slow tier
  const Bound bound = lower_bound(one_gap(), machine, {.fast_bytes = budget, .buckets = 5});
  EXPECT_THAT(bound.step_us, DoubleNear(100 + 2 * (away * 100 - 40), 1e-3));
  machine.tiers[1].capacity = 0;
  const Bound unlimited = lower_bound(one_gap(), machine, {.fast_bytes = budget, .buckets = 5});
  EXPECT_THAT(unlimited.step_us, DoubleNear(100, 1e-6));
}

// w is persistent and makes x at op 0 for 20 us; replaying that is cheaper than moving x.
Profile remakable() {
  ProfileBuilder b;
  const TensorId w = b.persistent(64), x = b.temporary(10 * kPage, 0, 4),
                 y = b.temporary(10 * kPage, 2, 2);
  b.op(0, 20, {w}, {x});
  b.op(1, 1, {});
  b.op(2, 1, {}, {y});
  b.op(3, 1, {});
  b.op(4, 1, {x});
  return b.profile;
}

TEST(Bound, RecomputationCostsTheMaker) {
  Machine machine = slow_link();
  BoundOptions options{.fast_bytes = 15 * kPage + 512, .buckets = 5, .recompute = true};
  const Bound bound = lower_bound(remakable(), machine, options);
  // About half of x: half a replay. In the fluid program some of it may be moved meanwhile.
  EXPECT_LT(bound.step_us, ideal_us(remakable()) + 10);
  EXPECT_GT(bound.step_us, ideal_us(remakable()) + 5);
  machine.tiers[1].read_bw = machine.tiers[1].write_bw = 1e5;  // hopeless
  const Bound replayed = lower_bound(remakable(), machine, options);
  const double share = (5 - 512.0 / kPage + 64.0 / kPage) / 10;
  EXPECT_THAT(replayed.step_us, DoubleNear(ideal_us(remakable()) + 20 * share, 1e-2));
  ASSERT_FALSE(replayed.gaps.empty());
  EXPECT_EQ(replayed.gaps.back().storage, 1u);
  EXPECT_THAT(replayed.gaps.back().recomputed, DoubleNear(share, 1e-3));
  options.recompute = false;
  EXPECT_GT(lower_bound(remakable(), machine, options).step_us, 1e5);
}

TEST(Bound, ReplaysIncludeDeadInputsAndWhatCannotBeReplayedIsNot) {
  ProfileBuilder b;
  const TensorId w = b.persistent(64), a = b.temporary(kPage, 0, 1), x = b.temporary(kPage, 1, 5),
                 u = b.temporary(kPage, 2, 5);
  b.op(0, 1, {w}, {a});
  b.op(1, 1, {a}, {x});
  b.op(2, 1, {}, {u});  // data loading
  b.op(3, 1, {});
  b.op(4, 1, {});
  b.op(5, 1, {x, u});
  const ReplayCost cost(b.profile);
  EXPECT_THAT(cost.making(x, OpId(3)), ElementsAre(0u, 1u));  // a is dead by then
  EXPECT_THAT(cost.making(x, OpId(1)), IsEmpty());            // not made yet
  EXPECT_THAT(cost.making(u, OpId(4)), IsEmpty());
}

class BoundOnTrainings : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(BoundOnTrainings, FallsWithTheBudgetAndRisesWithTheBuckets) {
  const Profile profile = random_training(GetParam());
  const Machine machine = two_tiers(kPage, 0.2);
  const auto at = [&](std::uint64_t percent, std::uint32_t buckets) {
    return lower_bound(profile, machine,
                       {.fast_bytes = peak_live_bytes(profile) * percent / 100,
                        .buckets = buckets,
                        .recompute = GetParam() % 2 == 0})
        .step_us;
  };
  const double rounding = 1 + 1e-7;
  double before = kInfinity;
  for (const std::uint64_t percent : {50, 60, 70, 80, 90, 100}) {
    const double now = at(percent, 40);
    EXPECT_LE(now, before * rounding) << percent;
    before = now;
  }
  EXPECT_GT(at(50, 40), ideal_us(profile));
  EXPECT_GE(at(50, 20) * rounding, at(50, 5));
  EXPECT_GE(at(50, 84) * rounding, at(50, 20));
}

TEST_P(BoundOnTrainings, IsTheSameEveryTime) {
  const Profile profile = random_training(GetParam());
  const BoundOptions options{.fast_bytes = peak_live_bytes(profile) / 2, .recompute = true};
  const Bound a = lower_bound(profile, two_tiers(kPage), options),
              b = lower_bound(profile, two_tiers(kPage), options);
  EXPECT_EQ(a.step_us, b.step_us);
  EXPECT_EQ(a.gaps, b.gaps);
  for (const GapShare& share : a.gaps) {
    double sum = share.recomputed;
    for (double s : share.evicted) sum += s;
    EXPECT_LE(sum, 1 + 1e-6);
    EXPECT_LT(share.use, share.next);
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, BoundOnTrainings, ::testing::Range<std::uint64_t>(1, 7));

TEST(Bound, WithoutTimeItIsTheSumOfOps) {
  const Profile profile = random_training(3);
  const Bound bound = lower_bound(profile, two_tiers(kPage, 0.2),
                                  {.fast_bytes = peak_live_bytes(profile) / 2, .time_limit_s = 0});
  EXPECT_EQ(bound.step_us, ideal_us(profile));
  EXPECT_FALSE(bound.exact);
}

TEST(Buckets, FewerAreAmongMore) {
  const Profile profile = random_training(5);
  const StepFacts facts = step_facts(profile, two_tiers(kPage), 1_GiB, false);
  for (std::uint32_t few : {1u, 7u, 20u}) {
    const Buckets coarse(profile, facts, few), fine(profile, facts, 3 * few);
    EXPECT_LE(coarse.size(), few);
    double us = 0;
    for (std::uint32_t j = 0; j < coarse.size(); ++j) {
      bool found = false;
      for (std::uint32_t i = 0; i < fine.size(); ++i)
        found |= fine.checkpoint(i) == coarse.checkpoint(j);
      EXPECT_TRUE(found);
      us += coarse.us(j);
      EXPECT_EQ(coarse.of_start(coarse.checkpoint(j)), j);
      EXPECT_EQ(coarse.of_end(coarse.checkpoint(j)), j + 1);
    }
    EXPECT_THAT(us, DoubleNear(ideal_us(profile), 1e-6));
  }
}

// Least x + y with x + 2 y >= 4 and y <= 1: x = 2, y = 1.
TEST(LinearProgram, ProvesItsOptimum) {
  LinearProgram p;
  const auto x = p.column(0, 10, 1), y = p.column(0, 1, 1);
  const auto row = p.row(4, kInfinity);
  p.add(row, x, 1);
  p.add(row, y, 1);
  p.add(row, y, 1);  // adds up
  const auto solution = p.solve(1);
  EXPECT_TRUE(solution.optimal);
  EXPECT_THAT(solution.lower_bound, DoubleNear(3, 1e-9));
  EXPECT_THAT(solution.value, ElementsAre(DoubleNear(2, 1e-9), DoubleNear(1, 1e-9)));
}

}  // namespace
}  // namespace sentinel::plan
