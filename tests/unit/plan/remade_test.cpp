// Gaps that are made again where tensors share granules of 2 MiB.
#include "plan/gaps/remade.h"

#include <gmock/gmock.h>

#include "plan/check/explain.h"
#include "plan/check/verify.h"
#include "plan/gaps/scheduled.h"
#include "plan/step/interval.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"
#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// w -> op 0 -> x (5 MiB) -> op 1 -> y (4 MiB) -> op 2 -> z (4 MiB); ops 3 to 5 read z, y, x back.
struct Chain {
  ProfileBuilder b;
  TensorId w = b.persistent(2_MiB), x = b.temporary(5_MiB, 0, 5), y = b.temporary(4_MiB, 1, 4),
           z = b.temporary(4_MiB, 2, 3);
  Chain() {
    b.op(0, 100, {w}, {x});
    b.op(1, 100, {w, x}, {y});
    b.op(2, 100, {w, y}, {z});
    b.op(3, 100, {w, z});
    b.op(4, 100, {w, y});
    b.op(5, 100, {w, x});
    for (std::size_t k = 3; k < 6; ++k) b.profile.ops[k].phase = Phase::backward;
  }
};

// The same, and s (1 MiB) lies in the last granule of x as long as x lives.
struct SharedEnd : Chain {
  TensorId s = b.temporary(1_MiB, 0, 5);
  Layout layout;
  SharedEnd() {
    b.profile.ops[0].out = {x, s};
    b.profile.ops[5].in = {w, x, s};
    layout.groups = {{.pool = Pool::long_lived,
                      .bytes = 6_MiB,
                      .first_layer = LayerId(0),
                      .last_layer = LayerId(5)}};
    layout.placements = {{x, GroupId(0), 0}, {s, GroupId(0), 5_MiB}};
    layout.region_bytes = 6_MiB;
  }
};

Machine frames(double gb_per_s = 0.5) {
  Machine machine = two_tiers(2_MiB, gb_per_s);
  machine.exclusive = true;
  return machine;
}

TEST(Footprint, ADiscardFreesTheGranulesThatNobodyElseLiesIn) {
  const Chain chain;
  const Footprint footprint(chain.b.profile, {}, 2_MiB);
  EXPECT_EQ(footprint.whole_bytes(chain.x), 6_MiB);
  EXPECT_EQ(footprint.whole_bytes(chain.y), 4_MiB);
  EXPECT_THAT(footprint.whole(chain.x), SizeIs(2));
  EXPECT_THAT(footprint.units(chain.x), SizeIs(2));
  const Footprint pages(chain.b.profile, {}, 4096);
  EXPECT_EQ(pages.whole_bytes(chain.x), 5_MiB);

  const SharedEnd shared;
  const Footprint others(shared.b.profile, shared.layout.placements, 2_MiB);
  EXPECT_EQ(others.whole_bytes(shared.x), 4_MiB);
  EXPECT_THAT(others.whole(shared.x), SizeIs(1));
  EXPECT_EQ(others.whole_bytes(shared.s), 0u);
}

TEST(Footprint, ATensorWithinOneGranuleOfItsOwnIsWhole) {
  ProfileBuilder b;
  const TensorId t = b.temporary(1_MiB, 0, 1);
  b.op(0, 1, {}, {t});
  const Footprint footprint(b.profile, {}, 2_MiB);
  EXPECT_EQ(footprint.whole_bytes(t), 2_MiB);
}

TEST(Footprint, NeighboursInAGranuleLeaveNeitherOfThemWhole) {
  ProfileBuilder b;
  const TensorId s = b.temporary(3_MiB, 0, 1), t = b.temporary(3_MiB, 0, 1);
  b.op(0, 1, {}, {s, t});
  b.op(1, 1, {s, t});
  const std::vector<Placement> placements{{s, GroupId(0), 0}, {t, GroupId(0), 3_MiB}};
  const Footprint footprint(b.profile, placements, 2_MiB);
  EXPECT_EQ(footprint.whole_bytes(s), 2_MiB);
  EXPECT_EQ(footprint.whole_bytes(t), 2_MiB);
  EXPECT_THAT(footprint.members(footprint.units(s)[1]), ElementsAre(s, t));
}

TEST(Remade, AReplayIsAUseOfItsInputsAndComputesInMemoryOfItsOwn) {
  const Chain chain;
  const Machine machine = frames();
  const Basis basis(chain.b.profile, machine);
  const Remade made = remade(basis, 100_MiB, {{basis.storage_of[chain.y.index()], 2, 4}}, false);
  ASSERT_THAT(made.gaps, SizeIs(1));
  EXPECT_THAT(made.replays, ElementsAre(Recompute{OpId(1), OpId(4), {chain.y}}));
  EXPECT_THAT(made.storages[basis.storage_of[chain.x.index()]].uses, ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(made.memory, ElementsAre(0, 0, 0, 0, 4_MiB, 0));
  EXPECT_EQ(demand(basis, made).must[4], 2_MiB + 4_MiB + 6_MiB + 4_MiB);
}

// x is away too when y is made again, so that it is made on the way, once more at op 5; or stays.
TEST(Remade, WhatIsMadeOnTheWayMayStay) {
  const Chain chain;
  const Machine machine = frames();
  const Basis basis(chain.b.profile, machine);
  const std::vector<LostGap> both{{basis.storage_of[chain.x.index()], 1, 5},
                                  {basis.storage_of[chain.y.index()], 2, 4}};
  EXPECT_THAT(remade(basis, 100_MiB, both, false).replays,
              ElementsAre(Recompute{OpId(0), OpId(4), {}}, Recompute{OpId(1), OpId(4), {chain.y}},
                          Recompute{OpId(0), OpId(5), {chain.x}}));
  const Remade kept = remade(basis, 100_MiB, both, true);
  EXPECT_THAT(kept.replays, ElementsAre(Recompute{OpId(0), OpId(4), {chain.x}},
                                        Recompute{OpId(1), OpId(4), {chain.y}}));
  EXPECT_EQ(kept.gaps[0].next, 4u);
}

TEST(Remade, RefusesWhatHasNoRoomForItsReplay) {
  const Chain chain;
  const Machine machine = frames();
  const Basis basis(chain.b.profile, machine);
  // Op 4 itself uses w and y, 6 MiB; the replay reads x, 6 MiB in granules, and computes in 4.
  const std::vector<LostGap> y{{basis.storage_of[chain.y.index()], 2, 4}};
  EXPECT_THAT(remade(basis, 16_MiB, y, false).gaps, SizeIs(1));
  EXPECT_THAT(remade(basis, 16_MiB - 1, y, false).refused, SizeIs(1));
}

// Op 4 needs 6 MiB; its replays read w, compute x in 6 and after that y, and x stays beside it, in
// 6.
TEST(Remade, WhatHasNoRoomOnTheWayIsMadeOnceMore) {
  const Chain chain;
  const Machine machine = frames();
  const Basis basis(chain.b.profile, machine);
  const std::vector<LostGap> both{{basis.storage_of[chain.x.index()], 1, 5},
                                  {basis.storage_of[chain.y.index()], 2, 4}};
  const Remade made = remade(basis, 18_MiB, both, true);
  EXPECT_EQ(made.gaps.size(), 2u);
  EXPECT_LE(demand(basis, made).must[4], 18_MiB);
  EXPECT_THAT(made.replays, ElementsAre(Recompute{OpId(0), OpId(4), {chain.x}},
                                        Recompute{OpId(1), OpId(4), {chain.y}}));
  const Remade twice = remade(basis, 18_MiB - 1, both, true);
  EXPECT_THAT(twice.refused, IsEmpty());
  EXPECT_LE(demand(basis, twice).must[4], 18_MiB - 1);
  EXPECT_THAT(twice.replays,
              ElementsAre(Recompute{OpId(0), OpId(4), {}}, Recompute{OpId(1), OpId(4), {chain.y}},
                          Recompute{OpId(0), OpId(5), {chain.x}}));
}

// Op 4 makes 4 MiB as soon as its replay is over, in 4 as well.
TEST(Remade, WhatAnOpMakesIsNotThereWhileItsReplaysCompute) {
  Chain chain;
  const TensorId g = chain.b.temporary(4_MiB, 4, 5);
  chain.b.profile.ops[4].out = {g};
  const Machine machine = frames();
  const Basis basis(chain.b.profile, machine);
  const std::vector<LostGap> y{{basis.storage_of[chain.y.index()], 2, 4}};
  EXPECT_THAT(remade(basis, 16_MiB, y, false).memory, ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(remade(basis, 16_MiB - 1, y, false).refused, SizeIs(1));

  Plan plan = bare_plan("test", basis, {.fast_bytes = 16_MiB});
  plan.peak_fast_bytes = 16_MiB;
  plan.moves = {{.tensor = chain.y,
                 .direction = Direction::discard,
                 .trigger = OpId(2),
                 .deadline = OpId(2)}};
  plan.recomputations = {{.op = OpId(1), .before = OpId(4), .keep = {chain.y}}};
  EXPECT_THAT(verify(plan, chain.b.profile), IsEmpty());
  plan.fast_bytes = 16_MiB - 1;
  EXPECT_THAT(verify(plan, chain.b.profile), Contains(HasSubstr("op 4 holds 16777216 bytes")));
}

// Ops 0 to 4 make a, b of a, c of b, d of b and c, e of d, 4 MiB each.
TEST(ReplayRuns, EachFindsWhatTheOnesBeforeItKept) {
  ProfileBuilder b;
  const TensorId w = b.persistent(4_MiB);
  std::vector<TensorId> made;
  for (std::size_t k = 0; k < 5; ++k) made.push_back(b.temporary(4_MiB, k, 5));
  b.op(0, 1, {w}, {made[0]});
  b.op(0, 1, {made[0]}, {made[1]});
  b.op(0, 1, {made[1]}, {made[2]});
  b.op(0, 1, {made[1], made[2]}, {made[3]});
  b.op(0, 1, {made[3]}, {made[4]});
  b.op(0, 1, made);
  const auto runs = [&](std::vector<int> kept, std::uint64_t bytes) {
    std::vector<Recompute> replays;
    for (std::uint32_t k = 0; k < 5; ++k) replays.push_back({.op = OpId(k), .before = OpId(5)});
    for (int k : kept)
      replays[static_cast<std::size_t>(k)].keep = {made[static_cast<std::size_t>(k)]};
    EXPECT_EQ(replay_bytes(b.profile, replays, 2_MiB), bytes);
    return replay_runs(b.profile, replays);
  };
  EXPECT_THAT(runs({4}, 12_MiB), ElementsAre(ElementsAre(0, 1, 2, 3, 4)));
  EXPECT_THAT(runs({1, 4}, 8_MiB), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3, 4)));
  EXPECT_THAT(
      runs({0, 1, 2, 3, 4}, 4_MiB),
      ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3), ElementsAre(4)));
  // c and d both need b, which no run keeps: they are made in one, and so b is once.
  EXPECT_THAT(runs({0, 2, 3, 4}, 12_MiB),
              ElementsAre(ElementsAre(0), ElementsAre(1, 2, 3), ElementsAre(4)));
}

TEST(Remade, NothingIsLostOverTheStepsEnd) {
  Chain chain;
  chain.b.profile.tensors[chain.x.index()].free_op.reset();
  const Machine machine = frames();
  const Basis basis(chain.b.profile, machine);
  EXPECT_THAT(remade(basis, 100_MiB, {{basis.storage_of[chain.x.index()], 1, 5}}, false).gaps,
              IsEmpty());
}

// An in-place op between two versions: what one replay overwrites in its memory, no later one may
// want as it was.
TEST(Remade, AReplayNeverReadsWhatAnotherHasOverwritten) {
  ProfileBuilder b;
  const TensorId w = b.persistent(4_MiB), x = b.temporary(4_MiB, 0, 6),
                 y = b.temporary(4_MiB, 1, 6);
  b.op(0, 10, {w}, {x});
  b.op(1, 10, {x}, {y});
  b.op(2, 10, {x}, {x});
  b.op(3, 10, {w});
  b.op(4, 10, {w});
  b.op(5, 10, {w});
  b.op(6, 10, {x, y});
  const Machine machine = frames();
  const Basis basis(b.profile, machine);
  const Remade made =
      remade(basis, 100_MiB,
             {{basis.storage_of[x.index()], 2, 6}, {basis.storage_of[y.index()], 1, 6}}, false);
  EXPECT_THAT(made.replays,
              ElementsAre(Recompute{OpId(0), OpId(6), {}}, Recompute{OpId(1), OpId(6), {y}},
                          Recompute{OpId(2), OpId(6), {x}}));
  Plan plan{.granule_bytes = 2_MiB, .recomputations = made.replays};
  EXPECT_THAT(illegal_replays(plan, b.profile), IsEmpty());
  std::swap(plan.recomputations[1], plan.recomputations[2]);
  EXPECT_THAT(illegal_replays(plan, b.profile),
              Contains(HasSubstr("reads what another one has overwritten")));
}

TEST(Schedule, ARemadeGapGoesOnToHoldTheEndsThatOthersShare) {
  const SharedEnd chain;
  const Machine machine = frames();
  const Basis basis(chain.b.profile, machine, chain.layout);
  const std::uint32_t x = basis.storage_of[chain.x.index()];
  const Remade made = remade(basis, 14_MiB, {{x, 1, 5}}, false);
  const Demand needs = demand(basis, made);
  const ScheduleInput in{.profile = basis.profile,
                         .storages = made.storages,
                         .movable = basis.movable,
                         .footprint = basis.footprint,
                         .demand = needs,
                         .limit = 14_MiB,
                         .given = {{.storage = x, .use = 1, .in = 5, .remade = true}},
                         .replay_reads = made.reads};
  const Schedule result = schedule(in, Intervals::each_op(basis.profile));
  ASSERT_THAT(result.gaps, SizeIs(1));
  EXPECT_TRUE(result.gaps[0].remade);
  EXPECT_EQ(result.gaps[0].out, 2u);
  EXPECT_EQ(result.gaps[0].in, 5u);
  // Of all, 2 + 6 + 4 + 4 MiB at ops 2 and 3, x gives up 4.
  EXPECT_THAT(result.held, ElementsAre(8_MiB, 12_MiB, 12_MiB, 12_MiB, 8_MiB, 14_MiB));
}

Plan with_discard(const Chain& chain, std::uint64_t budget, Layout layout = {}) {
  const Machine machine = frames();
  const Basis basis(chain.b.profile, machine, std::move(layout));
  Plan plan = bare_plan("test", basis, {.fast_bytes = budget});
  plan.peak_fast_bytes = budget;
  plan.moves = {{.tensor = chain.x,
                 .direction = Direction::discard,
                 .trigger = OpId(1),
                 .deadline = OpId(1)}};
  plan.recomputations = {{.op = OpId(0), .before = OpId(5), .keep = {chain.x}}};
  return plan;
}

TEST(VerifyReplays, CountsTheEndsOfWhatIsDiscardedAndAllThatReplaysMake) {
  const SharedEnd chain;
  const auto bad = [&](std::uint64_t budget) {
    return verify(with_discard(chain, budget, chain.layout), chain.b.profile);
  };
  // Op 5 uses 2 + 6 MiB, and the replay makes 5 MiB and s, 6 in granules, beside them.
  EXPECT_THAT(bad(14_MiB), IsEmpty());
  EXPECT_THAT(bad(13_MiB), Contains(HasSubstr("op 5 holds 14680064 bytes")));
  // Ops 2 and 3 hold 12 MiB with the end of x.
  EXPECT_THAT(bad(11_MiB), AllOf(Contains(HasSubstr("op 2 holds 12582912 bytes")),
                                 Contains(HasSubstr("op 3 holds 12582912 bytes"))));
}

TEST(VerifyReplays, RefusesToMakeAgainWhatOutlivesTheStep) {
  Chain chain;
  chain.b.profile.tensors[chain.x.index()].free_op.reset();
  EXPECT_THAT(illegal_replays(with_discard(chain, 14_MiB), chain.b.profile),
              Contains(HasSubstr("outlives the step")));
}

// 300 layers of one activation each: the last one's chain is as long.
TEST(VerifyReplays, RefusesMoreReplaysThanARunRemembers) {
  ProfileBuilder b;
  const TensorId w = b.persistent(4_MiB);
  std::vector<TensorId> made;
  Plan plan{.granule_bytes = 2_MiB};
  for (std::uint32_t k = 0; k < kMostRecipes + 1; ++k) {
    made.push_back(b.temporary(4_MiB, k, kMostRecipes + 2));
    b.op(k, 1, {k == 0 ? w : made[k - 1]}, {made[k]});
    plan.recomputations.push_back({OpId(k), OpId(kMostRecipes + 2), {made[k]}});
  }
  b.op(0, 1, {w});
  b.op(0, 1, made);
  EXPECT_THAT(illegal_replays(plan, b.profile), Contains(HasSubstr("more than the 64")));
}

Plan plan_of(const char* policy, const Profile& profile, const Machine& machine,
             const PlanOptions& options) {
  return dynamic_cast<PlannedPolicy&>(*make_policy(policy)).plan(profile, machine, options);
}

TEST(ReplaysOnFrames, SayWhatTheyCostAndWhatAMoveWould) {
  const Chain chain;
  const Plan plan = plan_of("home", chain.b.profile, frames(),
                            {.fast_bytes = 15_MiB, .pool_frames = 0, .threads = 1});
  EXPECT_THAT(verify(plan, chain.b.profile), IsEmpty());
  ASSERT_THAT(plan.recomputations, SizeIs(1));
  ASSERT_THAT(plan.moves, SizeIs(1));
  EXPECT_EQ(plan.moves[0].direction, Direction::discard);
  EXPECT_THAT(plan.moves[0].reason,
              AllOf(HasSubstr("made again before op 5 (op5) by op 0 (op0), which takes"),
                    HasSubstr("a move would take 21 ms")));
  EXPECT_THAT(
      explain(plan, chain.b.profile),
      HasSubstr("what is made again, by 1 replay of 100 \u00b5s a step\n    5.00 MiB  #1 t1: "
                "made again before op 5 (op5)"));
}

// Weights that are more than the budget stay where HOME rules alone.
TEST(ReplaysOnFrames, HomePlansWhereWeightsLeaveTooLittle) {
  ProfileBuilder b;
  std::vector<TensorId> weights;
  for (int l = 0; l < 12; ++l) weights.push_back(b.persistent(8_MiB));
  for (std::uint32_t l = 0; l < 12; ++l) b.op(l, 100, {weights[l]});
  const PlanOptions options{.fast_bytes = 48_MiB, .pool_frames = 2, .threads = 1};
  EXPECT_THROW(plan_of("home", b.profile, two_tiers(4096), options), Error);
  const Plan plan = plan_of("home", b.profile, frames(), options);
  EXPECT_THAT(verify(plan, b.profile), IsEmpty());
  EXPECT_FALSE(plan.moves.empty());
}

// Of every budget that works at all, each of these has a plan; it is one that verify() accepts.
TEST(ReplaysOnFrames, PlansOfRandomStepsVerify) {
  std::size_t with_replays = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const Profile profile = random_training(seed, {.layers = 16, .largest = 24_MiB});
    for (const char* policy : {"home", "capuchin", "superneurons"})
      for (const std::uint64_t percent : {25, 40, 60}) {
        const PlanOptions options{.fast_bytes = peak_live_bytes(profile) / 100 * percent,
                                  .pool_frames = 2,
                                  .threads = 1,
                                  .effort = 3,
                                  .time_limit_s = 100};
        const Plan plan = plan_of(policy, profile, frames(0.2), options);
        EXPECT_THAT(verify(plan, profile), IsEmpty()) << policy << " " << seed << " " << percent;
        with_replays += plan.recomputations.empty() ? 0 : 1;
      }
  }
  EXPECT_GT(with_replays, 10u);
}

// The same of steps of no shape at all.
TEST(ReplaysOnFrames, PlansOfRandomGraphsVerify) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Profile profile = random_graph(seed);
    for (const char* policy : {"home", "capuchin", "superneurons"}) {
      const PlanOptions options{.fast_bytes = std::max(24_MiB, peak_live_bytes(profile) / 2),
                                .pool_frames = 2,
                                .threads = 1,
                                .effort = 2,
                                .time_limit_s = 100};
      EXPECT_THAT(verify(plan_of(policy, profile, frames(0.1), options), profile), IsEmpty())
          << policy << " " << seed;
    }
  }
}

}  // namespace
}  // namespace sentinel::plan
