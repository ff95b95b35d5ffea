#include "sim/simulator.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "plan/check/verify.h"
#include "sentinel/error.h"
#include "sim/machine_file.h"
#include "trace/tensor_trace.h"
#include "unit/places.h"
#include "unit/plan/profiles.h"

namespace sentinel::sim {
namespace {

using namespace sentinel::testing;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kPage = 4096;

struct Silent final : Controller {
  void op_start(OpId, std::vector<Move>&) override {}
  void op_end(OpId, std::vector<Move>&) override {}
};

// Says given moves at given ops.
struct Scripted final : Controller {
  std::vector<Move> moves;
  void say(OpId op, bool promotions, std::vector<Move>& out) const {
    for (const Move& m : moves)
      if (m.trigger == op && (m.direction == Direction::promote) == promotions) out.push_back(m);
  }
  void op_start(OpId op, std::vector<Move>& out) override { say(op, true, out); }
  void op_end(OpId op, std::vector<Move>& out) override { say(op, false, out); }
};

// One page takes 10 us either way; faults cost 10 us a page. Two weights of 10 pages, ops of 300
// us.
Machine slow_link() {
  Machine m = two_tiers(kPage);
  m.tiers[1].read_bw = m.tiers[1].write_bw = kPage / 10e-6;
  return m;
}

Profile two_weights() {
  ProfileBuilder b;
  const TensorId v = b.persistent(10 * kPage), w = b.persistent(10 * kPage);
  b.op(0, 300, {v});
  b.op(1, 300, {v});
  b.op(2, 300, {w}, {w});
  return b.profile;
}

// Room for ten pages. v is made by op 0, read by op 1 and leaves for x, which op 2 makes; op 3 has
// it again, 100 us after it is asked for.
struct Copying {
  ProfileBuilder b;
  TensorId v = b.temporary(10 * kPage, 0, 3), x = b.temporary(10 * kPage, 2, 2);
  Scripted script;
  explicit Copying(double op1_us) {
    b.op(0, 300, {}, {v});
    b.op(0, op1_us, {v}, {});
    b.op(0, 300, {}, {x});
    b.op(0, 300, {v}, {});
    script.moves = {{.tensor = v, .direction = Direction::copy, .trigger = OpId(0)},
                    {.tensor = v, .direction = Direction::demote, .trigger = OpId(1)},
                    {.tensor = v, .direction = Direction::promote, .trigger = OpId(3)}};
  }
  SimResult run(const Machine& machine = slow_link()) {
    const SimResult r = simulate(b.profile, machine, script, {.fast_bytes = 10 * kPage});
    EXPECT_EQ(r.demand_faults, 0u);
    return r;
  }
};

// Copied while op 1 runs, it goes at once.
TEST(Simulator, WhatIsCopiedAheadLeavesWithoutAWrite) {
  Copying ahead(300), late(300);
  std::erase_if(late.script.moves, [](const Move& m) { return m.direction == Direction::copy; });
  EXPECT_NEAR(late.run().stall_us, 100 + 100, 1e-6);
  EXPECT_NEAR(ahead.run().stall_us, 100, 1e-6);
  EXPECT_EQ(ahead.run().traffic, late.run().traffic);
}

// A transfer takes half of the processors' time: the copy's 100 us are worth 50 to op 1. Where
// nothing computes meanwhile, moving costs nothing.
TEST(Simulator, MovingTakesProcessorTimeFromWhatComputes) {
  Machine machine = slow_link();
  machine.cpu_s_per_gb = 0.5 / (kPage / 10e-6 / 1e9);
  Copying ahead(300), late(300);
  std::erase_if(late.script.moves, [](const Move& m) { return m.direction == Direction::copy; });
  const SimResult a = ahead.run(machine), l = late.run(machine);
  EXPECT_NEAR(a.shared_us, 50, 1e-6);
  EXPECT_NEAR(a.stall_us, 100, 1e-6);
  EXPECT_NEAR(a.step_us, 1200 + 50 + 100, 1e-6);
  EXPECT_NEAR(l.shared_us, 0, 1e-6);
  EXPECT_NEAR(l.step_us, 1200 + 200, 1e-6);
}

// After 60 us of its copy v is asked to leave: it holds its space for the other 40.
TEST(Simulator, WhatLeavesDuringItsCopyWaitsForIt) {
  EXPECT_NEAR(Copying(60).run().stall_us, 40 + 100, 1e-6);
}

// Op 1 writes v when it ends, 20 us before its copy would: the copy is worth nothing, and the way
// is free for the next.
TEST(Simulator, ACopyOfWhatIsWrittenMeanwhileIsGivenUp) {
  Copying c(80);
  c.b.profile.ops[1].out = {c.v};
  EXPECT_NEAR(c.run().stall_us, 20 + 100 + 100, 1e-6);
}

// w leaves when v may be copied, and op 1 makes y in its place: w goes first, for 100 us.
TEST(Simulator, WhatLeavesGoesBeforeWhatIsCopiedAhead) {
  Copying c(300);
  const TensorId w = c.b.persistent(10 * kPage), y = c.b.temporary(10 * kPage, 1, 1);
  c.b.profile.ops[0].in.push_back(w);
  c.b.profile.ops[0].out.push_back(w);
  c.b.profile.ops[1].out.push_back(y);
  c.script.moves.push_back({.tensor = w, .direction = Direction::demote, .trigger = OpId(0)});
  c.script.moves.push_back({.tensor = w, .direction = Direction::promote, .trigger = OpId(3)});
  const SimResult r = simulate(c.b.profile, slow_link(), c.script, {.fast_bytes = 20 * kPage});
  EXPECT_NEAR(r.stall_us, 100 + 100, 1e-6);
}

TEST(Simulator, WithEnoughMemoryTheStepIsItsOps) {
  Silent controller;
  const Profile profile = random_training(1);
  const SimResult r = simulate(profile, two_tiers(kPage), controller, {.fast_bytes = 1_GiB});
  EXPECT_NEAR(r.step_us, r.ideal_us, 1e-6);
  EXPECT_EQ(r.demand_faults, 0u);
  EXPECT_THAT(r.traffic, IsEmpty());
}

// Room for one weight. Steady state: op 0 finds w in memory, dirty: it is written (100 us), then v
// is fetched by demand (10 faults, 100 us, and 100 us to read): 300 us late. v is clean when op 2
// needs w: it leaves for nothing, w costs 200 us. 900 us become 1400.
TEST(Simulator, DemandFaultsAndDirtyWritesAreStalls) {
  Silent controller;
  const SimResult r = simulate(two_weights(), slow_link(), controller, {.fast_bytes = 10 * kPage});
  EXPECT_NEAR(r.step_us, 1400, 1e-6);
  EXPECT_NEAR(r.stall_us, 500, 1e-6);
  EXPECT_EQ(r.demand_faults, 20u);
  EXPECT_EQ(r.evictions, 2u);
  EXPECT_EQ(r.peak_fast_bytes, 10 * kPage);
  EXPECT_THAT(r.op_stall_us,
              ElementsAre(::testing::DoubleNear(300, 1e-6), ::testing::DoubleNear(0, 1e-6),
                          ::testing::DoubleNear(200, 1e-6)));
  EXPECT_THAT(r.traffic, ElementsAre(Traffic{"fast", "slow", 10 * kPage},
                                     Traffic{"slow", "fast", 20 * kPage}));
}

// Where what came in gives up its copy, v is written too: 100 us more.
TEST(Simulator, OnExclusiveTiersWhatIsCleanIsWritten) {
  Silent controller;
  Machine machine = slow_link();
  machine.exclusive = true;
  const SimResult r = simulate(two_weights(), machine, controller, {.fast_bytes = 10 * kPage});
  EXPECT_NEAR(r.step_us, 1500, 1e-6);
  EXPECT_THAT(r.traffic, ElementsAre(Traffic{"fast", "slow", 20 * kPage},
                                     Traffic{"slow", "fast", 20 * kPage}));
}

// Room for both. w leaves after op 2, is written during op 0 of the next step and read back during
// op 1: 100 us each behind 300.
TEST(Simulator, PlannedMovesHideBehindOps) {
  Scripted controller;
  controller.moves = {{.tensor = TensorId(1), .direction = Direction::promote, .trigger = OpId(1)},
                      {.tensor = TensorId(1), .direction = Direction::demote, .trigger = OpId(2)}};
  const SimResult r = simulate(two_weights(), slow_link(), controller, {.fast_bytes = 20 * kPage});
  EXPECT_NEAR(r.step_us, 900, 1e-6);
  EXPECT_EQ(r.demand_faults, 0u);
  EXPECT_THAT(r.traffic, ElementsAre(Traffic{"fast", "slow", 10 * kPage},
                                     Traffic{"slow", "fast", 10 * kPage}));
}

// Triggered at the op that needs it, the promotion is waited for, and is no fault.
TEST(Simulator, LatePromotionIsWaitedFor) {
  Scripted controller;
  controller.moves = {{.tensor = TensorId(1), .direction = Direction::promote, .trigger = OpId(2)},
                      {.tensor = TensorId(1), .direction = Direction::demote, .trigger = OpId(2)}};
  const SimResult r = simulate(two_weights(), slow_link(), controller, {.fast_bytes = 20 * kPage});
  EXPECT_NEAR(r.step_us, 1000, 1e-6);
  EXPECT_EQ(r.demand_faults, 0u);
}

// A byte-addressable slow tier is used in place: reading 10 pages there twice takes 200 us; what
// they take from fast memory is part of the ops' times.
TEST(Simulator, ByteAddressableTierIsUsedInPlace) {
  Machine m = slow_link();
  m.tiers[1].byte_addressable = true;
  Silent controller;
  const TensorId absent[] = {TensorId(0)};
  const SimResult r =
      simulate(two_weights(), m, controller, {.fast_bytes = 10 * kPage, .absent = absent});
  EXPECT_NEAR(r.step_us, 900 + 200 - 20 * 4096 / 100e3, 1e-6);
  EXPECT_EQ(r.demand_faults, 0u);
}

// 10 pages do not fit into 5: the op reads them while it computes, 100 of its 300 us.
TEST(Simulator, AnOpLargerThanMemoryIsStreamed) {
  Silent controller;
  const SimResult r = simulate(two_weights(), slow_link(), controller, {.fast_bytes = 5 * kPage});
  EXPECT_EQ(r.streamed_ops, 3u);
  EXPECT_LE(r.peak_fast_bytes, 5 * kPage);
  EXPECT_NEAR(r.step_us, 900, 1e-6);
}

// v, w and x, of 6, 8 and 10 pages that take 10 us each. x fills the memory. Then v comes while w
// passes, in 140 us together, and the op computes for 100 of them.
TEST(Simulator, AnOpLargerThanMemoryComputesWhileItsOperandsCome) {
  ProfileBuilder b;
  const TensorId v = b.persistent(6 * kPage), w = b.persistent(8 * kPage);
  const TensorId x = b.persistent(10 * kPage);
  b.op(0, 50, {x});
  b.op(1, 100, {v, w});
  Silent controller;
  const SimResult r = simulate(b.profile, slow_link(), controller, {.fast_bytes = 10 * kPage});
  EXPECT_EQ(r.streamed_ops, 1u);
  EXPECT_LE(r.peak_fast_bytes, 10 * kPage);
  ASSERT_EQ(r.op_stall_us.size(), 2u);
  EXPECT_NEAR(r.op_stall_us[1], 40, 1e-6);
  ASSERT_EQ(r.traffic.size(), 1u);
  EXPECT_EQ(r.traffic[0].bytes, 24 * kPage);
}

// An operand that it makes has its room before one that would have to come.
TEST(Simulator, AnOpLargerThanMemoryHoldsWhatItMakes) {
  ProfileBuilder b;
  const TensorId v = b.persistent(8 * kPage), x = b.persistent(10 * kPage);
  const TensorId y = b.temporary(8 * kPage, 1, 2);
  b.op(0, 50, {x});
  b.op(1, 100, {v}, {y});
  b.op(2, 50, {y});
  Silent controller;
  const SimResult r = simulate(b.profile, slow_link(), controller, {.fast_bytes = 10 * kPage});
  ASSERT_EQ(r.op_stall_us.size(), 3u);
  EXPECT_NEAR(r.op_stall_us[1], 0, 1e-6);
  EXPECT_NEAR(r.op_stall_us[2], 0, 1e-6);
}

TEST(Simulator, RefusesMachinesItCannotReplayOn) {
  Silent controller;
  EXPECT_THROW(simulate(two_weights(), slow_link(), controller, {.fast_bytes = 1}), Error);
  EXPECT_THROW(simulate(two_weights(), Machine{.name = "m", .tiers = {{.name = "fast"}}},
                        controller, {.fast_bytes = 1_GiB}),
               Error);
}

Plan make_plan(const Profile& profile, const Machine& machine, std::uint64_t budget) {
  const auto policy = make_policy("sentinel");
  return dynamic_cast<PlannedPolicy&>(*policy).plan(profile, machine,
                                                    {.fast_bytes = budget, .pool_frames = 2});
}

class RandomSimulation : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(RandomSimulation, PlansRunWithinTheirBudget) {
  const Profile profile = random_training(GetParam());
  for (const std::uint64_t granule : {4_KiB, 2_MiB})
    for (std::uint64_t percent = 20; percent <= 100; percent += 20) {
      const Machine machine = two_tiers(granule, 4);
      const Plan plan =
          make_plan(profile, machine, peak_live_bytes(profile) * percent / 100 + 8 * granule);
      const SimResult r = simulate(profile, machine, plan);
      EXPECT_LE(r.peak_fast_bytes, plan.fast_bytes) << percent;
      EXPECT_GE(r.step_us, r.ideal_us - 1e-6) << percent;
      EXPECT_EQ(r, simulate(profile, machine, plan)) << percent;
      if (!plan.streamed_ops.empty()) continue;
      EXPECT_EQ(r.demand_faults, 0u) << percent;
      EXPECT_EQ(r.evictions, 0u) << percent;
      EXPECT_EQ(r.streamed_ops, 0u) << percent;
    }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomSimulation, ::testing::Range<std::uint64_t>(1, 16));

class RandomGraphSimulation : public ::testing::TestWithParam<std::uint64_t> {};

// Whatever the plan is, and without any, the step ends and the limit holds.
TEST_P(RandomGraphSimulation, NeverExceedsTheCapacity) {
  const Profile profile = random_graph(GetParam());
  const Machine machine = two_tiers(4_KiB, 4);
  for (const std::uint64_t percent : {10, 30, 60, 100}) {
    const std::uint64_t budget = peak_live_bytes(profile) * percent / 100 + 8 * kPage;
    const Plan plan = make_plan(profile, machine, budget);
    const SimResult planned = simulate(profile, machine, plan);
    EXPECT_LE(planned.peak_fast_bytes, budget) << percent;
    if (plan.streamed_ops.empty()) {
      EXPECT_EQ(planned.demand_faults, 0u) << percent;
    }
    Silent controller;
    const SimResult on_demand = simulate(profile, machine, controller, {.fast_bytes = budget});
    EXPECT_LE(on_demand.peak_fast_bytes, budget) << percent;
    EXPECT_GE(on_demand.step_us, on_demand.ideal_us * (1 - 1e-9)) << percent;
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphSimulation, ::testing::Range<std::uint64_t>(1, 101));

class RealTrace : public ::testing::TestWithParam<const char*> {};

TEST_P(RealTrace, PlansHoldAndRunWithoutFaults) {
  const std::string path = std::string(test::kTraces) + "/" + GetParam() + ".jsonl.gz";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const Profile profile = read_tensor_trace(path);
  const Machine machine = find_machine("a100-g10");
  const auto policy = make_policy("sentinel");
  const Plan plan =
      dynamic_cast<PlannedPolicy&>(*policy).plan(profile, machine, {.fast_bytes = 40_GiB});
  EXPECT_THAT(plan::verify(plan, profile), IsEmpty());
  const SimResult r = simulate(profile, machine, plan);
  EXPECT_LE(r.peak_fast_bytes, 40_GiB);
  EXPECT_EQ(r.demand_faults, 0u);
  EXPECT_GE(r.step_us, r.ideal_us * (1 - 1e-9));
  RecordProperty("normalized_throughput", std::to_string(r.normalized_throughput()));
  std::printf("%s: %.3f of ideal, predicted %.3f\n", GetParam(), r.normalized_throughput(),
              r.ideal_us / plan.predicted_step_us);
}
INSTANTIATE_TEST_SUITE_P(G10, RealTrace,
                         ::testing::Values("BERT_Base-256", "BERT_Base-256-warm", "ResNet152-1280",
                                           "ResNet152-1280-warm"));

// Weights of 10 pages each, two updates a step, and room for one: each comes and goes once.
TEST(Simulator, ItsJudgeCountsWhatMoves) {
  ProfileBuilder b;
  const TensorId v = b.persistent(10 * kPage), w = b.persistent(10 * kPage);
  b.op(0, 300, {v}, {v});
  b.op(0, 300, {w}, {w});
  const Plan plan = make_plan(b.profile, slow_link(), 14 * kPage);
  const Verdict verdict = judge()(b.profile, slow_link(), plan);
  EXPECT_EQ(verdict.in_bytes, 20 * kPage);
  EXPECT_EQ(verdict.out_bytes, 20 * kPage);
}

// An op of thousands of operands that are all away asks for each once, and waits for the last.
TEST(Simulator, AnOpOfVeryManyOperandsFetchesEachOnce) {
  constexpr std::uint32_t kMany = 3000;
  ProfileBuilder b;
  std::vector<TensorId> all;
  for (std::uint32_t i = 0; i < kMany; ++i) all.push_back(b.persistent(kPage));
  b.op(0, 10, {});
  b.op(0, 10, all);
  Silent silent;
  const SimResult r = simulate(b.profile, slow_link(), silent,
                               {.fast_bytes = kMany * kPage, .steps = 1, .absent = all});
  EXPECT_EQ(r.demand_faults, kMany);
  EXPECT_EQ(r.streamed_ops, 0u);
  EXPECT_EQ(r.evictions, 0u);
  EXPECT_NEAR(r.step_us, 20 + kMany * (10 + 10), 1e-3);
}

}  // namespace
}  // namespace sentinel::sim
