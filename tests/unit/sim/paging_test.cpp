#include "sim/paging.h"

#include <gmock/gmock.h>

#include "base/units.h"
#include "contract/paging.h"
#include "sim/cache_run.h"
#include "sim/machine_file.h"
#include "sim/run.h"
#include "unit/plan/profiles.h"

namespace sentinel {
INSTANTIATE_TEST_SUITE_P(FaultDriven, PagingContract,
                         ::testing::Values("lru", "deepum", "memory-mode"));
}

namespace sentinel::sim {
namespace {

using namespace sentinel::testing;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A block takes 100 us either way. A fault batch is 1 MiB and takes 10 us: 20 us a block.
Machine block_machine() {
  const double bw = kBlockBytes / 100e-6;
  return {.name = "blocks",
          .tiers = {{.name = "fast"}, {.name = "slow", .read_bw = bw, .write_bw = bw}},
          .fault_us = 10,
          .fault_batch_bytes = 1_MiB};
}

SimResult simulated(const char* name, const Profile& profile, const Machine& machine,
                    PlanOptions options, SimOptions sim = {}) {
  return run(*make_policy(name), profile, machine, std::move(options), sim).result;
}

// Two weights of four blocks that take turns in a memory of four. First step: 80 us of faults on
// new pages for each, and v is written before w comes: 380 + 780. Later each op waits for 400 us of
// writing, 80 of faults and 400 of reading: 1180 each.
TEST(Lru, FaultsEvictThenFetch) {
  ProfileBuilder b;
  const TensorId v = b.persistent(8_MiB), w = b.persistent(8_MiB);
  b.op(0, 300, {v});
  b.op(1, 300, {w});
  const SimResult r = simulated("lru", b.profile, block_machine(), {.fast_bytes = 8_MiB});
  EXPECT_THAT(r.step_times_us, ElementsAre(DoubleNear(1160, 1e-6), DoubleNear(2360, 1e-6),
                                           DoubleNear(2360, 1e-6), DoubleNear(2360, 1e-6)));
  EXPECT_NEAR(r.stall_us, 1760, 1e-6);
  EXPECT_EQ(r.demand_faults, 16u);
  EXPECT_EQ(r.paging.faulted_blocks, 8u);
  EXPECT_EQ(r.evictions, 8u);
  EXPECT_EQ(r.peak_fast_bytes, 8_MiB);
  EXPECT_THAT(r.traffic,
              ElementsAre(Traffic{"fast", "slow", 16_MiB}, Traffic{"slow", "fast", 16_MiB}));
}

// After a first step of some 100 us, 1e-9 us are lost in the clock.
TEST(Lru, AShortStepIsNoShorterThanItsOps) {
  for (const char* policy : {"lru", "deepum"}) {
    ProfileBuilder b;
    const TensorId v = b.persistent(1), w = b.persistent(1_MiB);
    b.op(0, 1e-9, {v, w});
    const SimResult r =
        simulated(policy, b.profile, find_machine("a100-g10"), {.fast_bytes = 8_MiB});
    EXPECT_GE(r.step_us, 1e-9) << policy;
    EXPECT_GE(r.step_times_us.back(), 1e-9) << policy;
  }
}

// A host of four blocks: of twelve blocks four are in fast memory, four there, four below.
TEST(Lru, WhatTheHostCannotHoldGoesFurtherDown) {
  Machine m = block_machine();
  m.tiers[1].capacity = 8_MiB;
  m.tiers.push_back(
      {.name = "ssd", .read_bw = m.tiers[1].read_bw, .write_bw = m.tiers[1].write_bw});
  ProfileBuilder b;
  for (int i = 0; i < 3; ++i) b.op(i, 300, {b.persistent(8_MiB)});
  const SimResult r = simulated("lru", b.profile, m, {.fast_bytes = 8_MiB});
  std::uint64_t in = 0;
  for (const Traffic& t : r.traffic) in += t.to == "fast" ? t.bytes : 0;
  EXPECT_EQ(in, 24_MiB);
  EXPECT_THAT(r.traffic, ::testing::Contains(::testing::Field(&Traffic::to, "ssd")));
  EXPECT_EQ(r.peak_fast_bytes, 8_MiB);
}

// Four pages of one tensor and four of another in the same block: one fault batch covers both.
TEST(Lru, OneBatchCoversSmallTensors) {
  ProfileBuilder b;
  const TensorId v = b.persistent(16_KiB), w = b.persistent(16_KiB);
  b.op(0, 300, {v, w});
  const SimResult r =
      simulated("lru", b.profile, block_machine(), {.fast_bytes = 8_MiB}, {.steps = 1});
  EXPECT_EQ(r.demand_faults, 1u);
  EXPECT_NEAR(r.step_us, 310, 1e-6);
  EXPECT_EQ(r.peak_fast_bytes, 32_KiB);
}

// Twelve blocks through a memory of four: the op evicts its own.
TEST(Lru, AnOpLargerThanMemoryIsStreamed) {
  ProfileBuilder b;
  b.op(0, 300, {b.persistent(24_MiB)});
  const SimResult r = simulated("lru", b.profile, block_machine(), {.fast_bytes = 8_MiB});
  EXPECT_EQ(r.streamed_ops, 1u);
  EXPECT_EQ(r.peak_fast_bytes, 8_MiB);
  // Eight blocks at least were not there.
  EXPECT_GE(r.step_us, 300 + 8 * (100 + 20 + 100));
}

// Three weights of eight blocks, used in turn for 2000 us each, in a memory of sixteen. One kernel
// ahead: while one weight is used the next one comes (800 us) into the place of the last (800 us),
// both ways at once but for the first blocks: hidden.
Profile three_weights() {
  ProfileBuilder b;
  for (int i = 0; i < 3; ++i) b.op(i, 2000, {b.persistent(16_MiB)});
  return b.profile;
}

TEST(DeepUm, PrefetchAndPreEvictionHideEveryTransfer) {
  const SimResult r = simulated("deepum", three_weights(), block_machine(),
                                {.fast_bytes = 32_MiB, .look_ahead = 1}, {.timeline = true});
  EXPECT_NEAR(r.step_us, 6000, 1e-6);
  EXPECT_EQ(r.demand_faults, 0u);
  EXPECT_EQ(r.paging.late_blocks, 0u);
  EXPECT_THAT(r.traffic,
              ElementsAre(Traffic{"fast", "slow", 48_MiB}, Traffic{"slow", "fast", 48_MiB}));
  EXPECT_THAT(r.timeline.waits, IsEmpty());
  EXPECT_FALSE(r.timeline.transfers.empty());
  EXPECT_GT(r.step_times_us.front(), 6000);
  const SimResult lru = simulated("lru", three_weights(), block_machine(), {.fast_bytes = 32_MiB});
  EXPECT_EQ(lru.demand_faults, 48u);
}

// Without it the commands still run ahead, but each evicts first: 8 x 200 us, hidden as well here,
// and the victims are the least recently migrated whatever comes next.
TEST(DeepUm, WithoutPreEvictionRoomIsMadeOnTheWay) {
  const auto slow = simulated("deepum", three_weights(), block_machine(),
                              {.fast_bytes = 32_MiB, .look_ahead = 1, .without = {"pre-eviction"}});
  EXPECT_EQ(slow.demand_faults, 0u);
  EXPECT_NEAR(slow.step_us, 6000, 1e-6);
  Profile hasty = three_weights();
  for (Op& op : hasty.ops) op.us = 1200;  // 800 + 400 are hidden, 1600 are not
  const PlanOptions with{.fast_bytes = 32_MiB, .look_ahead = 1};
  PlanOptions without = with;
  without.without = {"pre-eviction"};
  EXPECT_NEAR(simulated("deepum", hasty, block_machine(), with).step_us, 3600, 1e-6);
  EXPECT_GT(simulated("deepum", hasty, block_machine(), without).step_us, 3900);
}

// A tensor of eight blocks that lives for one op only, and a weight of sixteen, in a memory of
// sixteen. Dead blocks are dropped, and new again when used again: only half of the weight moves.
// Without invalidation the dead tensor goes out and comes back like anything else.
TEST(DeepUm, DeadBlocksAreDropped) {
  ProfileBuilder b;
  const TensorId weight = b.persistent(32_MiB), scratch = b.temporary(16_MiB, 0, 0);
  b.op(0, 300, {}, {scratch});
  b.op(1, 300, {weight});
  PlanOptions options{.fast_bytes = 32_MiB};
  const SimResult with = simulated("deepum", b.profile, block_machine(), options);
  EXPECT_THAT(with.traffic,
              ElementsAre(Traffic{"fast", "slow", 16_MiB}, Traffic{"slow", "fast", 16_MiB}));
  EXPECT_EQ(with.paging.invalidated_blocks, 8u);
  options.without = {"invalidation"};
  const SimResult without = simulated("deepum", b.profile, block_machine(), options);
  EXPECT_THAT(without.traffic,
              ElementsAre(Traffic{"fast", "slow", 32_MiB}, Traffic{"slow", "fast", 32_MiB}));
  EXPECT_EQ(without.paging.invalidated_blocks, 0u);
}

TEST(Paging, TheLastStepIsASteadyOne) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Profile profile = random_training(seed);
    const auto r = simulated("deepum", profile, block_machine(),
                             {.fast_bytes = std::max(8_MiB, peak_live_bytes(profile) / 2)});
    const std::size_t n = r.step_times_us.size();
    EXPECT_TRUE(n == 3 + kMoreSteps ||
                std::abs(r.step_times_us[n - 1] - r.step_times_us[n - 2]) <= 1e-3 * r.step_us);
    EXPECT_EQ(r.step_us, r.step_times_us.back());
  }
}

TEST(Paging, NoiseIsDrawnFromTheSeed) {
  const Profile profile = three_weights();
  const auto at = [&](std::uint64_t seed) {
    return simulated("lru", profile, block_machine(), {.fast_bytes = 1_GiB},
                     {.noise = 0.2, .seed = seed})
        .step_us;
  };
  EXPECT_EQ(at(1), at(1));
  EXPECT_NE(at(1), at(2));
  EXPECT_NEAR(at(1), 6000, 1200);
}

// Ten pages of cache. v and w lie ten pages apart, so each displaces the other. A page takes 10 us
// from or to the slow tier. v comes (100 us) and w, dirty, goes (100); v hits; w comes (100), v is
// clean. 900 us become 1200.
TEST(MemoryMode, MissesFillAndDirtyLinesAreWrittenBack) {
  Machine m = block_machine();
  m.tiers[1].read_bw = m.tiers[1].write_bw = kPageBytes / 10e-6;
  m.tiers[1].byte_addressable = true;
  ProfileBuilder b;
  const TensorId v = b.persistent(10 * kPageBytes), w = b.persistent(10 * kPageBytes);
  b.op(0, 300, {v});
  b.op(1, 300, {v});
  b.op(2, 300, {w}, {w});
  const PlanOptions options{.fast_bytes = 10 * kPageBytes};
  const SimResult r = simulated("memory-mode", b.profile, m, options);
  EXPECT_NEAR(r.step_us, 1200, 1e-6);
  EXPECT_THAT(r.op_stall_us, ElementsAre(DoubleNear(200, 1e-6), 0, DoubleNear(100, 1e-6)));
  EXPECT_THAT(r.traffic, ElementsAre(Traffic{"fast", "slow", 10 * kPageBytes},
                                     Traffic{"slow", "fast", 20 * kPageBytes}));
  // With counts: each opening that misses costs 2 us of latency too, and op 0 opens half of v, so
  // that half of w is written back there. 5 x 12 + 5 x 10, nothing, 10 x 12.
  m.tiers[1].latency_us = 2;
  b.profile.accesses = {{v, OpId(0), 5, 0}, {v, OpId(1), 30, 0}, {w, OpId(2), 10, 10}};
  const SimResult counted = simulated("memory-mode", b.profile, m, options);
  EXPECT_THAT(counted.op_stall_us, ElementsAre(DoubleNear(110, 1e-6), 0, DoubleNear(120, 1e-6)));
  m.tiers[1].byte_addressable = false;
  EXPECT_THROW(simulated("memory-mode", b.profile, m, options), Error);
}

// Against a cache that knows each byte.
TEST(DirectMappedCache, IsExact) {
  constexpr std::uint64_t kBytes = 97;
  struct Byte {
    std::uint64_t tag = UINT64_MAX;
    bool dirty = false;
  };
  std::vector<Byte> bytes(kBytes);
  DirectMappedCache cache(kBytes);
  std::mt19937_64 random(3);
  for (int i = 0; i < 5000; ++i) {
    const std::uint64_t begin = random() % 400, n = 1 + random() % 150;
    const bool write = random() % 2 == 0;
    std::uint64_t filled = 0, back = 0;
    for (std::uint64_t a = begin; a < begin + n; ++a) {
      Byte& byte = bytes[a % kBytes];
      if (byte.tag != a / kBytes) {
        ++filled;
        back += byte.dirty ? 1 : 0;
        byte = {a / kBytes, false};
      }
      byte.dirty |= write;
    }
    const auto misses = cache.access(begin, n, write);
    ASSERT_EQ(misses.filled, filled) << i;
    ASSERT_EQ(misses.written_back, back) << i;
  }
}

}  // namespace
}  // namespace sentinel::sim
