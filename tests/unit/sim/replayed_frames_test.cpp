// Replays of a training run's plans in the simulator: what they hold, take, and are worth.
#include <gmock/gmock.h>

#include "plan/check/verify.h"
#include "sentinel/policy.h"
#include "sim/simulator.h"
#include "unit/plan/profiles.h"

namespace sentinel::sim {
namespace {

using namespace sentinel::testing;
using ::testing::IsEmpty;

Machine frames(double gb_per_s) {
  Machine machine = two_tiers(2_MiB, gb_per_s);
  machine.exclusive = true;
  return machine;
}

Plan plan_of(const char* policy, const Profile& profile, const Machine& machine,
             const PlanOptions& options) {
  return dynamic_cast<PlannedPolicy&>(*make_policy(policy)).plan(profile, machine, options);
}

// x, of 5 MiB, is discarded after op 1 and made again before op 3 by op 0, of 100 us. Beside it the
// run hashes 5 MiB twice and copies them, each at 100 GB/s.
TEST(ReplayedFrames, TakeTheirOpsTimeAndThreePassesOverWhatComesBack) {
  ProfileBuilder b;
  const TensorId w = b.persistent(2_MiB), x = b.temporary(5_MiB, 0, 3);
  b.op(0, 100, {w}, {x});
  b.op(1, 10, {w, x});
  b.op(2, 10, {w});
  b.op(3, 10, {w, x});
  Plan plan{.fast_bytes = 14_MiB, .granule_bytes = 2_MiB};
  plan.peak_fast_bytes = 14_MiB;
  plan.moves = {
      {.tensor = x, .direction = Direction::discard, .trigger = OpId(1), .deadline = OpId(1)}};
  plan.recomputations = {{.op = OpId(0), .before = OpId(3), .keep = {x}}};
  ASSERT_THAT(plan::verify(plan, b.profile), IsEmpty());
  const SimResult result = simulate(b.profile, frames(1), plan, {});
  const double passes = 3 * 1e6 * static_cast<double>(5_MiB) / 100e9;
  EXPECT_NEAR(result.step_us, 130 + 100 + passes, 0.01);
  EXPECT_NEAR(result.recompute_us, 100 + passes, 0.01);
  EXPECT_EQ(result.peak_fast_bytes, 13_MiB);  // w, the granules of x, what the replay makes
}

// By the simulator, that is; it judges each of them.
TEST(ReplayedFrames, PlansWithThemAreNeverSlowerThanPlansWithout) {
  std::size_t quicker = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Profile profile = random_training(seed, {.layers = 16, .largest = 24_MiB});
    for (const char* policy : {"capuchin", "superneurons", "home"})
      for (const double gb_per_s : {0.2, 20.0}) {
        PlanOptions options{.fast_bytes = peak_live_bytes(profile) / 10 * 4,
                            .pool_frames = 2,
                            .threads = 1,
                            .effort = 3,
                            .time_limit_s = 100,
                            .judge = judge()};
        const Machine machine = frames(gb_per_s);
        const Plan with = plan_of(policy, profile, machine, options);
        options.recompute = false;
        const Plan without = plan_of(policy, profile, machine, options);
        EXPECT_THAT(without.recomputations, IsEmpty());
        EXPECT_THAT(plan::verify(with, profile), IsEmpty());
        const double us = simulate(profile, machine, with, {}).step_us,
                     moved_us = simulate(profile, machine, without, {}).step_us;
        EXPECT_LE(us, moved_us * (1 + 1e-9)) << policy << " " << seed << " " << gb_per_s;
        quicker += us < 0.99 * moved_us ? 1 : 0;
      }
  }
  EXPECT_GT(quicker, 3u);
}

TEST(ReplayedFrames, AutoMakesPlansForTrainingRuns) {
  const Profile profile = random_training(2, {.layers = 16, .largest = 24_MiB});
  const PlanOptions options{.fast_bytes = peak_live_bytes(profile) / 10 * 4,
                            .pool_frames = 2,
                            .threads = 1,
                            .effort = 40,
                            .time_limit_s = 60,
                            .judge = judge(),
                            .parts = false,
                            .copies = false,
                            .in_place = false};
  const Machine machine = frames(0.2);
  const Plan plan = plan_of("auto", profile, machine, options);
  EXPECT_THAT(plan::verify(plan, profile, machine), IsEmpty());
  EXPECT_FALSE(plan.recomputations.empty());
  EXPECT_EQ(plan.part_bytes, 0u);
}

// It begins from their plans, and they are given as much effort.
TEST(ReplayedFrames, AutoIsNoWorseThanTheOthers) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const Profile profile = random_training(seed, {.layers = 16, .largest = 24_MiB});
    const PlanOptions options{.fast_bytes = peak_live_bytes(profile) / 10 * 4,
                              .pool_frames = 2,
                              .threads = 1,
                              .effort = 20,
                              .time_limit_s = 1000,
                              .judge = judge(),
                              .parts = false,
                              .copies = false};
    const Machine machine = frames(0.2);
    const auto us = [&](const char* policy) {
      const Plan plan = plan_of(policy, profile, machine, options);
      EXPECT_THAT(plan::verify(plan, profile), IsEmpty()) << policy;
      return simulate(profile, machine, plan, {}).step_us;
    };
    const double ours = us("auto");
    for (const char* other : {"home", "capuchin", "superneurons", "sentinel", "g10"})
      EXPECT_LE(ours, us(other) * (1 + 1e-9)) << other << " " << seed;
  }
}

}  // namespace
}  // namespace sentinel::sim
