// How far an engine of pools overlaps what it moves with what is computed, on a device in virtual
// time: a step is within a tenth of perfect overlap, whatever the driver's calls take.
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "unit/plan/profiles.h"
#include "unit/runtime/gpu/virtual_training.h"

namespace sentinel {
namespace {

using ::testing::IsEmpty;

constexpr std::uint64_t kGranule = 2_MiB, kActivation = 96_MiB;

// Layers that each save what they make for the backward pass, in reverse.
Profile layers(std::uint32_t count, double us) {
  testing::ProfileBuilder b;
  std::vector<TensorId> weights, saved, gradients;
  for (std::uint32_t l = 0; l < count; ++l) weights.push_back(b.persistent(8_MiB));
  for (std::uint32_t l = 0; l < count; ++l)
    saved.push_back(b.temporary(kActivation, l, 2 * count - 1 - l));
  for (std::uint32_t l = 0; l < count; ++l)
    gradients.push_back(
        b.temporary(kActivation, 2 * count - 1 - l, std::min(2 * count - l, 2 * count - 1)));
  for (std::uint32_t l = 0; l < count; ++l)
    b.op(l, us, l > 0 ? std::vector{weights[l], saved[l - 1]} : std::vector{weights[l]},
         {saved[l]});
  for (std::uint32_t l = count; l-- > 0;) {
    std::vector<TensorId> in{weights[l], saved[l]};
    if (l + 1 < count) in.push_back(gradients[l + 1]);
    b.op(2 * count - 1 - l, 2 * us, in, {gradients[l], weights[l]});
    b.profile.ops.back().phase = Phase::backward;
    b.profile.layers.back().phase = Phase::backward;
  }
  return rig::for_gpu(b.profile);
}

rig::StepOutcome train(const Profile& profile, std::uint64_t budget,
                       const gpu::VirtualCosts& costs) {
  const auto plan =
      rig::virtual_plan(profile, rig::virtual_machine(costs, kGranule), budget, "sentinel", 5);
  EXPECT_FALSE(plan.moves.empty());
  return rig::VirtualTraining(profile, plan, costs, kGranule).train(4);
}

// Copies hide behind kernels (4 ms a layer, of which 2 ms are copied each way), or they are what
// takes long (1 ms). A call takes as long for one chunk as for many, or longer with each.
TEST(Overlap, IsWithinATenthOfPerfect) {
  for (const double us : {4000.0, 1000.0})
    for (const double more_us : {0.0, 20.0}) {
      const auto profile = layers(30, us);
      const auto budget = peak_live_bytes(profile) * 2 / 5;
      const gpu::VirtualCosts costs{.map_more_us = more_us};
      const auto step = train(profile, budget, costs);
      EXPECT_THAT(step.complaints, IsEmpty());
      EXPECT_GT(step.in_bytes, 1_GiB);
      EXPECT_LT(step.step_us, 1.1 * rig::simple_bound_us(profile, budget, costs.bytes_per_us))
          << us << " us, " << more_us << " us more for each chunk";
    }
}

// Neighbours share a call of the driver, an event and the thread that waits for it.
TEST(Overlap, TakesFewCallsOfTheDriver) {
  const auto profile = layers(30, 4000);
  const auto step = train(profile, peak_live_bytes(profile) * 2 / 5, {});
  const auto moved = (step.in_bytes + step.out_bytes) / kGranule;
  EXPECT_LT(step.counts.maps + step.counts.unmaps, moved / 5);
  EXPECT_LT(step.counts.events, moved / 2);
}

// As tests/gpu/movement.cpp measures it on a device: ranges that come and ranges that leave, in
// turns, fill a link that takes both ways at once.
TEST(Overlap, MovesBothWaysAtOnceAsFastAsTheLink) {
  constexpr std::uint64_t kRange = 32_MiB, kRanges = 64;
  const gpu::VirtualCosts costs;
  gpu::VirtualGpu gpu(costs);
  auto engine = std::make_unique<gpu::GpuEngine>(
      gpu, gpu::PoolOptions{.arena_bytes = 2 * kRanges * kRange, .granule_bytes = kGranule});
  const auto stream = gpu.make_stream();
  gpu.await_others(3);
  engine->compute_on(stream);
  const auto at = [&](std::uint64_t n) { return engine->arena() + n * kRange; };
  engine->set_budget((kRanges + 8) * kRange);
  const auto exchange = [&](std::uint64_t here, std::uint64_t away) {
    for (std::uint64_t n = 0; n < kRanges; ++n) {
      engine->demote(at(here + n), kRange);
      engine->promote(at(away + n), kRange);
    }
    for (std::uint64_t n = 0; n < kRanges; ++n) {
      engine->tick();
      engine->await(at(away + n), kRange);
    }
    engine->settle();
    engine->finish();
  };
  for (std::uint64_t n = 0; n < 2 * kRanges; ++n) {
    engine->tick();
    ASSERT_TRUE(engine->on_allocate(at(n), kRange));
  }
  engine->tick();
  engine->demote(at(0), kRanges * kRange);
  engine->settle();
  exchange(kRanges, 0);  // the host's memory is pinned
  const double begin = gpu.now();
  const auto before = engine->counters();
  exchange(0, kRanges);
  const double us = gpu.now() - begin;
  const auto after = engine->counters();
  EXPECT_EQ(after.promoted_bytes - before.promoted_bytes, kRanges * kRange);
  EXPECT_EQ(after.demoted_bytes - before.demoted_bytes, kRanges * kRange);
  EXPECT_GT(kRanges * kRange / us, 0.95 * costs.bytes_per_us) << "each way";
  EXPECT_THAT(gpu.complaints(), IsEmpty());
  gpu.release();
  engine.reset();
}

TEST(Overlap, IsTheSameInEveryRun) {
  const auto profile = layers(12, 1000);
  const auto budget = peak_live_bytes(profile) / 2;
  const auto first = train(profile, budget, {}), second = train(profile, budget, {});
  EXPECT_EQ(first.step_us, second.step_us);
  EXPECT_EQ(first.counts.maps, second.counts.maps);
}

}  // namespace
}  // namespace sentinel
