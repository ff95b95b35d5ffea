// The project's own policy against the others and against itself.
#include <gmock/gmock.h>
#include <tbb/global_control.h>

#include "plan/check/verify.h"
#include "plan/step/parts.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sim/run.h"
#include "unit/plan/profiles.h"

namespace sentinel::sim {
namespace {

using namespace sentinel::testing;
using ::testing::IsEmpty;

constexpr std::uint64_t kPage = 4096;

PlanOptions options(std::uint64_t fast_bytes) {
  return {.fast_bytes = fast_bytes, .effort = 40, .time_limit_s = 1000, .judge = judge()};
}

// A slow link and cheap forward ops: what is saved for the backward pass is better made again than
// moved. Four layers of 64 pages; the link moves a page in 10 us, an op takes 100 us.
Profile cheap_to_remake() {
  ProfileBuilder b;
  const TensorId input = b.persistent(4 * kPage);
  std::vector<TensorId> saved;
  for (std::size_t l = 0; l < 4; ++l) saved.push_back(b.temporary(64 * kPage, l, 7 - l));
  for (std::size_t l = 0; l < 4; ++l)
    b.op(static_cast<std::uint32_t>(l), 100, {l == 0 ? input : saved[l - 1]}, {saved[l]});
  for (std::size_t l = 4; l-- > 0;) b.op(static_cast<std::uint32_t>(7 - l), 100, {saved[l]});
  return b.profile;
}

Machine slow_link() {
  Machine m = two_tiers(kPage);
  m.tiers[1].read_bw = m.tiers[1].write_bw = kPage / 10e-6;
  return m;
}

// Three of the four fit: one is made again, from its predecessor, in 100 us. Moving it takes 640 us
// each way, with at most 300 us of ops to hide behind.
TEST(Auto, RemakesWhatIsCheaperToRemakeThanToMove) {
  const Profile profile = cheap_to_remake();
  const auto policy = make_policy("auto");
  const auto run = sim::run(*policy, profile, slow_link(), options(200 * kPage));
  EXPECT_THAT(plan::verify(*run.plan, profile), IsEmpty());
  EXPECT_NEAR(run.result.step_us, 900, 1);
  EXPECT_NEAR(run.result.recompute_us, 100, 1e-6);

  PlanOptions moves_only = options(200 * kPage);
  moves_only.recompute = false;
  const auto moved = sim::run(*policy, profile, slow_link(), moves_only);
  EXPECT_THAT(moved.plan->recomputations, IsEmpty());
  EXPECT_GT(moved.result.step_us, run.result.step_us);
}

// Some plans copy ahead; none where that is not allowed.
TEST(Auto, CopiesAheadWhereThatIsAllowed) {
  std::size_t copying = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const Profile profile = random_training(seed);
    PlanOptions allowed = options(peak_live_bytes(profile) / 2), leaving = allowed,
                forbidden = allowed;
    for (PlanOptions* o : {&allowed, &leaving, &forbidden}) o->recompute = false;
    leaving.without = {"copies"};
    forbidden.copies = false;
    const auto copies = [&](const PlanOptions& o) {
      const auto run = sim::run(*make_policy("auto"), profile, two_tiers(kPage, 2), o);
      EXPECT_THAT(plan::verify(*run.plan, profile), IsEmpty());
      return std::ranges::count(run.plan->moves, Direction::copy, &Move::direction);
    };
    copying += copies(allowed) > 0;
    EXPECT_EQ(copies(leaving), 0);
    EXPECT_EQ(copies(forbidden), 0);
  }
  EXPECT_GT(copying, 0u);
}

TEST(Auto, NeedsASimulatorToTryOn) {
  const auto policy = make_policy("auto");
  EXPECT_THROW(dynamic_cast<PlannedPolicy&>(*policy).plan(cheap_to_remake(), slow_link(),
                                                          {.fast_bytes = 200 * kPage}),
               Error);
}

class AutoOnRandom : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(AutoOnRandom, HoldsRepeatsAndIsNeverWorse) {
  const Profile profile = random_training(GetParam());
  const Machine machine = two_tiers(kPage, 0.1 * static_cast<double>(1 + GetParam() % 8));
  for (const std::uint64_t percent : {30, 60}) {
    const PlanOptions o = options(peak_live_bytes(profile) * percent / 100);
    const auto run = sim::run(*make_policy("auto"), profile, machine, o);
    EXPECT_THAT(plan::verify(*run.plan, profile), IsEmpty());
    EXPECT_LE(run.result.peak_fast_bytes, o.fast_bytes);
    EXPECT_EQ(run.result.demand_faults, 0u);
    EXPECT_EQ(run.result, sim::run(*make_policy("auto"), profile, machine, o).result);
    for (const char* other : {"sentinel", "g10", "lms", "tensile", "capuchin"}) {
      try {
        const auto theirs = sim::run(*make_policy(other), profile, machine, o);
        EXPECT_LE(run.result.step_us, theirs.result.step_us * (1 + 1e-3)) << other;
      } catch (const Error&) {  // who finds no plan is no rival
      }
    }
  }
}
TEST(Auto, IsTheSameOnAnyNumberOfProcessorsAndKeepsToItsEffort) {
  const Profile profile = random_training(3);
  for (std::uint64_t effort : {3, 11, 60}) {
    PlanOptions own = options(peak_live_bytes(profile) * 6 / 10);
    own.effort = effort;
    own.without = {"floor"};
    const auto step_us = [&] {
      const auto run = sim::run(*make_policy("auto"), profile, slow_link(), own);
      EXPECT_LE(run.plan->effort, effort);
      return run.result.step_us;
    };
    const double many = step_us();
    const tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
    EXPECT_EQ(step_us(), many) << effort;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, AutoOnRandom, ::testing::Range<std::uint64_t>(1, 7));

}  // namespace
}  // namespace sentinel::sim
