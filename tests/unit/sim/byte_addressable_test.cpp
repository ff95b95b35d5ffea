// Slower tiers that ops use in place, and the policies made for them, on machines where a page
// takes 10 us from or to slow memory. Fast memory has 100 GB/s: a page takes 0.04096 us there,
// which is part of the ops' own times, so that a page used in place costs kPageUs more.
#include <gmock/gmock.h>

#include "plan/check/verify.h"
#include "sentinel/error.h"
#include "sim/machine_file.h"
#include "sim/simulator.h"
#include "unit/plan/profiles.h"

namespace sentinel::sim {
namespace {

using namespace sentinel::testing;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kPage = 4096;
constexpr double kPageUs = 10 - 4096 / 100e3;

Machine pmm() {
  Machine m = two_tiers(kPage);
  m.tiers[1].read_bw = m.tiers[1].write_bw = kPage / 10e-6;
  m.tiers[1].byte_addressable = true;
  return m;
}

struct Silent final : Controller {
  void op_start(OpId, std::vector<Move>&) override {}
  void op_end(OpId, std::vector<Move>&) override {}
};

SimResult run(const char* name, const Profile& profile, std::uint64_t fast,
              const Machine& machine = pmm()) {
  const auto policy = make_policy(name);
  const PlanOptions options{.fast_bytes = fast, .pool_frames = 0, .effort = 5, .judge = judge()};
  if (auto* planned = dynamic_cast<PlannedPolicy*>(policy.get())) {
    const Plan plan = planned->plan(profile, machine, options);
    EXPECT_THAT(plan::verify(plan, profile), IsEmpty()) << name;
    return simulate(profile, machine, plan);
  }
  const auto controller = dynamic_cast<OnlinePolicy&>(*policy).prepare(profile, machine, options);
  return simulate(profile, machine, *controller, {.fast_bytes = fast});
}

// v of 10 pages is read by ops 0 and 1, w of 10 pages is read and written by op 2; 300 us each.
Profile two_weights() {
  ProfileBuilder b;
  const TensorId v = b.persistent(10 * kPage), w = b.persistent(10 * kPage);
  b.op(0, 300, {v});
  b.op(1, 300, {v});
  b.op(2, 300, {w}, {w});
  return b.profile;
}

// v fits and stays; w does not, and is read and written in slow memory: 20 pages.
TEST(FirstTouch, WhatComesFirstStaysInFastMemory) {
  const SimResult r = run("first-touch", two_weights(), 10 * kPage);
  EXPECT_NEAR(r.step_us, 900 + 20 * kPageUs, 1e-6);
  EXPECT_THAT(r.traffic, IsEmpty());
}

// Room that a dead tensor left is the next one's: t (10 pages, ops 0 and 1) and u (ops 2 and 3)
// are both made in fast memory; x, made while t lives, is not, and stays where it is: written at
// op 1 and read at op 3.
TEST(FirstTouch, RoomIsReusedAndNothingMoves) {
  ProfileBuilder b;
  const TensorId t = b.temporary(10 * kPage, 0, 1), x = b.temporary(5 * kPage, 1, 3),
                 u = b.temporary(10 * kPage, 2, 3);
  b.op(0, 100, {}, {t});
  b.op(1, 100, {t}, {x});
  b.op(2, 100, {}, {u});
  b.op(3, 100, {u, x});
  EXPECT_NEAR(run("first-touch", b.profile, 10 * kPage).step_us, 400 + 10 * kPageUs, 1e-6);
}

// v is read twice, w read and written: 40 pages.
TEST(SlowOnly, EverythingIsUsedInSlowMemory) {
  const SimResult r = run("slow-only", two_weights(), 20 * kPage);
  EXPECT_NEAR(r.step_us, 900 + 40 * kPageUs, 1e-6);
  EXPECT_EQ(r.peak_fast_bytes, 0u);
}

// A tensor that another op overwrites whole stays in slow memory too.
TEST(SlowOnly, OverwritingDoesNotMove) {
  ProfileBuilder b;
  const TensorId t = b.temporary(10 * kPage, 0, 1);
  b.op(0, 100, {}, {t});
  b.op(1, 100, {}, {t});
  EXPECT_NEAR(run("slow-only", b.profile, 20 * kPage).step_us, 200 + 20 * kPageUs, 1e-6);
}

// With counts: 3 reads and 2 writes of w at op 2. Each costs 0.3 us of latency more than in fast
// memory; a written page takes 20 us, a read one 10. v is opened once by op 0, not at all by op 1.
TEST(InPlace, CostsWhatTheCountsSay) {
  Machine m = pmm();
  m.tiers[0].latency_us = 0.1;
  m.tiers[1].latency_us = 0.4;
  m.tiers[1].write_bw = kPage / 20e-6;
  Profile profile = two_weights();
  profile.meta.read_write = true;
  profile.accesses = {{TensorId(0), OpId(0), 1, 0}, {TensorId(1), OpId(2), 3, 2}};
  const double read = 0.3 + kPageUs, written = 0.3 + 10 + kPageUs;
  EXPECT_NEAR(run("slow-only", profile, 20 * kPage, m).step_us, 900 + 4 * read + 2 * written, 1e-6);
  // Where reads and writes are not told apart, an op that writes a tensor writes at each opening.
  profile.meta.read_write = false;
  EXPECT_NEAR(run("slow-only", profile, 20 * kPage, m).step_us, 900 + read + 5 * written, 1e-6);
}

// No room even for one tensor, and a controller that wants all in fast memory: used in place, at
// its price, and no op counts as streamed.
TEST(InPlace, WhatFindsNoRoomIsPaidFor) {
  ProfileBuilder b;
  const TensorId t = b.temporary(10 * kPage, 0, 1);
  b.op(0, 100, {}, {t});
  b.op(1, 100, {t});
  Silent controller;
  const SimResult r = simulate(b.profile, pmm(), controller, {.fast_bytes = 5 * kPage});
  EXPECT_NEAR(r.step_us, 200 + 20 * kPageUs, 1e-6);
  EXPECT_EQ(r.streamed_ops, 0u);
}

TEST(InPlace, TheTimelineTellsTheTiersApart) {
  const auto controller = dynamic_cast<OnlinePolicy&>(*make_policy("first-touch"))
                              .prepare(two_weights(), pmm(), {.fast_bytes = 10 * kPage});
  const SimResult r =
      simulate(two_weights(), pmm(), *controller, {.fast_bytes = 10 * kPage, .timeline = true});
  ASSERT_EQ(r.timeline.uses.size(), 3u);
  EXPECT_EQ(r.timeline.uses[0].fast_bytes, 10 * kPage);
  EXPECT_EQ(r.timeline.uses[0].slow_bytes, 0);
  EXPECT_EQ(r.timeline.uses[2].slow_bytes, 20 * kPage);
  EXPECT_NEAR(r.timeline.uses[2].end_us, r.step_us, 1e-6);
}

// Ten ops of 100 us, so a scan after each. c comes first and gets fast memory, h is read by every
// op, c by op 0 only. The first scan finds both referenced. The second finds c idle: it is put on
// the inactive list and exchanged for h at op 2, which waits for c to be written (100 us) and for h
// (100 us). From then on only c's reading at op 0 is in slow memory: the scan after it finds c
// active but nothing inactive in fast memory to exchange it for.
TEST(Ial, ExchangesWhatIsActiveForWhatIsNot) {
  ProfileBuilder b;
  const TensorId c = b.persistent(10 * kPage), h = b.persistent(10 * kPage);
  b.op(0, 100, {c, h});
  for (std::uint32_t k = 1; k < 10; ++k) b.op(k, 100, {h});
  const SimResult r = run("ial", b.profile, 10 * kPage);
  EXPECT_THAT(r.step_times_us, ElementsAre(DoubleNear(1000 + 20 * kPageUs + 200, 1e-6),
                                           DoubleNear(1000 + 10 * kPageUs, 1e-6),
                                           DoubleNear(1000 + 10 * kPageUs, 1e-6)));
}

// v is read by ops 0 to 2 (in place: 30 pages, 299 us), w read and written by op 3 (20 pages, 199
// us). Room for one. Moving both costs v in, w in, w out: 300 us. Best: v always in fast memory.
TEST(AutoTm, LeavesWhatIsCheaperThere) {
  ProfileBuilder b;
  const TensorId v = b.persistent(10 * kPage), w = b.persistent(10 * kPage);
  for (std::uint32_t k = 0; k < 3; ++k) b.op(k, 100, {v});
  b.op(3, 100, {w}, {w});
  const SimResult r = run("autotm", b.profile, 10 * kPage);
  EXPECT_NEAR(r.step_us, 400 + 20 * kPageUs, 1e-6);
  EXPECT_THAT(r.traffic, IsEmpty());
}

// Read six times each, one after the other: in place 60 pages (598 us) for the one that stays out,
// against 200 us to fetch both in every step; neither is written, so leaving costs nothing.
TEST(AutoTm, MovesWhereThatIsCheaper) {
  ProfileBuilder b;
  const TensorId v = b.persistent(10 * kPage), w = b.persistent(10 * kPage);
  for (std::uint32_t k = 0; k < 12; ++k) b.op(k, 100, {k < 6 ? v : w});
  const SimResult r = run("autotm", b.profile, 10 * kPage);
  EXPECT_NEAR(r.step_us, 1200 + 200, 1e-6);
  EXPECT_THAT(r.traffic, ElementsAre(Traffic{"slow", "fast", 20 * kPage}));
}

// Case 3. x and y of 100 pages share room for one; x is opened once by op 0, y a thousand times by
// op 1. Moving both makes every op wait 1000 us for its tensor. Tried: x left in slow memory costs
// one opening, and y then never has to leave.
TEST(SentinelInPlace, LeavesALateTensorWhereThatIsFaster) {
  ProfileBuilder b;
  const TensorId x = b.persistent(100 * kPage), y = b.persistent(100 * kPage);
  b.op(0, 100, {x});
  b.op(1, 100, {y});
  b.profile.accesses = {{x, OpId(0), 1, 0}, {y, OpId(1), 1000, 0}};
  b.profile.meta.read_write = true;
  EXPECT_NEAR(run("sentinel", b.profile, 100 * kPage).step_us, 200 + kPageUs, 1e-6);
}

// The other way round it waits: both are opened a thousand times.
TEST(SentinelInPlace, WaitsForALateTensorWhereThatIsFaster) {
  ProfileBuilder b;
  const TensorId x = b.persistent(100 * kPage), y = b.persistent(100 * kPage);
  b.op(0, 100, {x});
  b.op(1, 100, {y});
  b.profile.accesses = {{x, OpId(0), 1000, 0}, {y, OpId(1), 1000, 0}};
  b.profile.meta.read_write = true;
  EXPECT_NEAR(run("sentinel", b.profile, 100 * kPage).step_us, 200 + 2000, 1e-6);
}

// An op that needs 20 pages where 15 are allowed: the tensor opened less stays in slow memory.
TEST(SentinelInPlace, NoOpIsStreamed) {
  ProfileBuilder b;
  const TensorId x = b.persistent(10 * kPage), y = b.persistent(10 * kPage);
  b.op(0, 100, {x, y});
  b.profile.accesses = {{x, OpId(0), 10, 0}, {y, OpId(0), 5, 0}};
  b.profile.meta.read_write = true;
  const SimResult r = run("sentinel", b.profile, 15 * kPage);
  EXPECT_NEAR(r.step_us, 100 + 5 * kPageUs, 1e-6);
  EXPECT_EQ(r.streamed_ops, 0u);
}

class RandomInPlace : public ::testing::TestWithParam<std::uint64_t> {};

// Whatever the step looks like: valid plans, the limit held, never slower than everything slow by
// more than moves that were worth nothing, and `sentinel` no worse than without its trial.
TEST_P(RandomInPlace, PlansHold) {
  for (const Profile& profile : {random_training(GetParam()), random_graph(GetParam())}) {
    for (const std::uint64_t percent : {15, 50}) {
      const std::uint64_t fast = peak_live_bytes(profile) * percent / 100 + 32 * kPage;
      for (const char* name : {"sentinel", "autotm", "first-touch", "slow-only", "ial"}) {
        const SimResult r = run(name, profile, fast);
        EXPECT_LE(r.peak_fast_bytes, fast) << name << ' ' << percent;
        EXPECT_GE(r.step_us, r.ideal_us * (1 - 1e-9)) << name << ' ' << percent;
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomInPlace, ::testing::Range<std::uint64_t>(1, 5));

TEST(InPlacePolicies, RefuseMachinesWithoutSuchATier) {
  for (const char* name : {"first-touch", "slow-only", "ial"})
    EXPECT_THROW(run(name, two_weights(), 10 * kPage, find_machine("v100-16gb")), Error) << name;
}

// Two nodes over a file: no op uses in place what lies in the file, whatever the second holds.
class ThreeTiers : public ::testing::TestWithParam<const char*> {};

TEST_P(ThreeTiers, PlansAreValidAndTakeNoFileForANode) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Profile profile = random_training(seed);
    const auto peak = peak_live_bytes(profile);
    for (const std::uint64_t percent : {5, 30, 100}) {
      Machine machine = pmm();
      machine.tiers[1].capacity = peak * percent / 100;
      machine.tiers.push_back({.name = "ssd", .read_bw = 2e9, .write_bw = 2e9});
      EXPECT_GT(run(GetParam(), profile, peak * 3 / 5, machine).step_us, 0) << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, ThreeTiers,
                         ::testing::Values("sentinel", "auto", "g10", "autotm"));

}  // namespace
}  // namespace sentinel::sim
