// Several jobs on one machine.
#include <gmock/gmock.h>

#include "plan/check/verify.h"
#include "sentinel/policy.h"
#include "sim/simulator.h"
#include "unit/plan/profiles.h"

namespace sentinel::sim {
namespace {

using namespace sentinel::testing;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint64_t kPage = 4096;

struct Silent : Controller {
  void op_start(OpId, std::vector<Move>&) override {}
  void op_end(OpId, std::vector<Move>&) override {}
};

struct Scripted final : Silent {
  std::vector<Move> moves;
  void say(OpId op, bool start, std::vector<Move>& out) const {
    for (const Move& m : moves)
      if (m.trigger == op && (m.direction == Direction::promote) == start) out.push_back(m);
  }
  void op_start(OpId op, std::vector<Move>& out) override { say(op, true, out); }
  void op_end(OpId op, std::vector<Move>& out) override { say(op, false, out); }
};

// One page takes 10 us either way; faults cost 10 us a page.
Machine slow_link() {
  Machine m = two_tiers(kPage);
  m.tiers[1].read_bw = m.tiers[1].write_bw = kPage / 10e-6;
  return m;
}

// So many ops of 300 us over one weight of 10 pages.
Profile one_weight(std::uint32_t ops) {
  ProfileBuilder b;
  const TensorId w = b.persistent(10 * kPage);
  for (std::uint32_t k = 0; k < ops; ++k) b.op(k, 300, {w}, {w});
  return b.profile;
}

TEST(Jobs, ShareTheMachinesCompute) {
  Silent silent;
  const Profile profile = one_weight(1);
  const Job job{.profile = &profile, .controller = &silent, .steps = 2};
  const Job jobs[] = {job, job};
  const auto r = simulate_jobs(jobs, slow_link(), {.fast_bytes = 20 * kPage});
  for (const SimResult& one : r.jobs) {
    EXPECT_NEAR(one.step_us, 600, 1e-6);
    EXPECT_NEAR(one.shared_us, 300, 1e-6);
    EXPECT_NEAR(one.stall_us, 0, 1e-6);
    EXPECT_THAT(one.op_stall_us, ElementsAre(DoubleNear(0, 1e-6)));
    EXPECT_EQ(one.peak_fast_bytes, 10 * kPage);
  }
  EXPECT_EQ(r.peak_fast_bytes, 20 * kPage);
}

// The second job comes when the first one is half through its only op: it has 150 us left, which
// take 300, and the newcomer then has 150 left for itself: 450 us in place of 300.
TEST(Jobs, ComeAndGo) {
  Silent silent;
  const Profile profile = one_weight(1);
  const Job jobs[] = {{.profile = &profile, .controller = &silent, .steps = 1},
                      {.profile = &profile, .controller = &silent, .start_us = 150, .steps = 1}};
  const auto r = simulate_jobs(jobs, slow_link(), {.fast_bytes = 20 * kPage});
  EXPECT_THAT(r.end_us, ElementsAre(DoubleNear(450, 1e-6), DoubleNear(600, 1e-6)));
  EXPECT_NEAR(r.jobs[1].step_us, 450, 1e-6);
}

// Job one swaps its second weight once a step, job two, with steps that begin and end elsewhere,
// moves nothing: each is charged with its own transfers of its own last step.
TEST(Jobs, HaveTrafficAndTimelinesOfTheirOwn) {
  ProfileBuilder b;
  const TensorId v = b.persistent(10 * kPage), w = b.persistent(10 * kPage);
  b.op(0, 300, {v});
  b.op(1, 300, {v});
  b.op(2, 300, {w}, {w});
  Scripted swaps;
  swaps.moves = {{.tensor = w, .direction = Direction::promote, .trigger = OpId(1)},
                 {.tensor = w, .direction = Direction::demote, .trigger = OpId(2)}};
  Silent silent;
  const Profile other = one_weight(2);
  const Job jobs[] = {{.profile = &b.profile, .controller = &swaps},
                      {.profile = &other, .controller = &silent, .steps = 6}};
  const auto r = simulate_jobs(jobs, slow_link(), {.fast_bytes = 40 * kPage, .timeline = true});
  EXPECT_THAT(r.jobs[0].traffic, ElementsAre(Traffic{"fast", "slow", 10 * kPage},
                                             Traffic{"slow", "fast", 10 * kPage}));
  EXPECT_THAT(r.jobs[0].timeline.transfers, SizeIs(2));
  EXPECT_EQ(r.jobs[0].peak_fast_bytes, 20 * kPage);
  EXPECT_THAT(r.jobs[1].traffic, IsEmpty());
  EXPECT_THAT(r.jobs[1].timeline.transfers, IsEmpty());
  EXPECT_THAT(r.jobs[1].timeline.samples,
              Each(::testing::Field(&Timeline::Sample::fast_bytes, 10 * kPage)));
}

// Room for one of two jobs' weights. What computes keeps what it uses, so that the second job waits
// until the first one, which never pauses, has gone after 1800 us; then it fetches its weight by
// demand, 10 faults of 10 us and 100 us to read. Nothing is streamed meanwhile.
TEST(Jobs, WaitForEachOthersRoom) {
  Silent silent;
  const Profile profile = one_weight(3);
  const Job job{.profile = &profile, .controller = &silent, .steps = 2};
  const Job jobs[] = {job, job};
  const auto r = simulate_jobs(jobs, slow_link(), {.fast_bytes = 10 * kPage});
  EXPECT_EQ(r.peak_fast_bytes, 10 * kPage);
  EXPECT_EQ(r.jobs[0].streamed_ops + r.jobs[1].streamed_ops, 0u);
  EXPECT_THAT(r.jobs[0].step_times_us, Each(DoubleNear(900, 1e-6)));
  EXPECT_THAT(r.jobs[1].step_times_us, ElementsAre(DoubleNear(2900, 1e-6), DoubleNear(900, 1e-6)));
}

// The first job frees 10 pages when its op ends, in the same instant at which the second one, which
// is asked first, waits for them: it begins at once, not at the next event.
TEST(Jobs, GoOnAsSoonAsAnotherOneGivesUpRoom) {
  ProfileBuilder lives, waits;
  lives.op(0, 100, {}, {lives.temporary(10 * kPage, 0, 0)});
  lives.op(1, 1000, {});
  waits.op(0, 10, {}, {waits.temporary(10 * kPage, 0, 0)});
  Silent silent;
  const Job jobs[] = {{.profile = &waits.profile, .controller = &silent, .start_us = 1, .steps = 1},
                      {.profile = &lives.profile, .controller = &silent, .steps = 1}};
  const auto r = simulate_jobs(jobs, slow_link(), {.fast_bytes = 10 * kPage});
  EXPECT_EQ(r.jobs[0].streamed_ops, 0u);
  EXPECT_THAT(r.end_us, ElementsAre(DoubleNear(120, 1e-6), DoubleNear(1110, 1e-6)));
}

// Op times turned out shorter: what was to leave 150 us after op 0 is in use by then, and what was
// to leave 400 us after op 1 has been used since.
TEST(Jobs, AMoveThatComesTooLateIsVoid) {
  ProfileBuilder b;
  const TensorId w = b.persistent(10 * kPage);
  b.op(0, 100, {w});
  b.op(1, 100, {});
  b.op(2, 300, {w});
  b.op(3, 200, {});
  Scripted late;
  late.moves = {{.tensor = w, .direction = Direction::demote, .trigger = OpId(0), .delay_us = 150},
                {.tensor = w, .direction = Direction::demote, .trigger = OpId(1), .delay_us = 400}};
  const SimResult r =
      simulate(b.profile, slow_link(), late, {.fast_bytes = 20 * kPage, .steps = 1});
  EXPECT_NEAR(r.step_us, 700, 1e-6);
  EXPECT_THAT(r.traffic, IsEmpty());
}

struct Measuring final : Silent {
  std::vector<std::vector<double>> steps;
  bool left = false;
  void step_end(std::span<const double> op_us, bool last) override {
    steps.emplace_back(op_us.begin(), op_us.end());
    left = last;
  }
};

TEST(Jobs, TellTheirControllersWhatOpsTook) {
  Measuring first, second;
  const Profile profile = one_weight(2);
  const Job jobs[] = {{.profile = &profile, .controller = &first, .steps = 2},
                      {.profile = &profile, .controller = &second, .steps = 1}};
  simulate_jobs(jobs, slow_link(), {.fast_bytes = 20 * kPage});
  EXPECT_THAT(first.steps, ElementsAre(Each(DoubleNear(600, 1e-6)), Each(DoubleNear(300, 1e-6))));
  EXPECT_THAT(second.steps, ElementsAre(Each(DoubleNear(600, 1e-6))));
  EXPECT_TRUE(first.left && second.left);
}

// What TENSILE plans for jobs that run together costs nothing and saves memory, whether they begin
// together or not.
TEST(Jobs, TensileSavesMemoryForNothing) {
  const Profile profile = random_training(5);
  const Machine machine = two_tiers(kPage, 40);
  const auto policy = make_policy("tensile");
  auto& tensile = dynamic_cast<PlannedPolicy&>(*policy);
  const std::uint64_t plenty = 4 * peak_live_bytes(profile);
  const std::vector<PlannedJob> planned{{.profile = &profile}, {.profile = &profile}};
  const auto plans = tensile.plan_jobs(planned, machine, {.fast_bytes = plenty});
  const auto controllers = tensile.control_jobs(planned, plans, machine, {.fast_bytes = plenty});
  std::vector<std::vector<TensorId>> absent;
  for (const Plan& plan : plans) absent.push_back(plan::absent_at_start(plan, profile));
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < 2; ++i)
    jobs.push_back(
        {.profile = &profile, .controller = controllers[i].get(), .steps = 4, .absent = absent[i]});
  const auto r = simulate_jobs(jobs, machine, {.fast_bytes = plenty});
  EXPECT_LE(r.peak_fast_bytes, plans[0].peak_fast_bytes + plans[1].peak_fast_bytes);
  EXPECT_LT(static_cast<double>(r.peak_fast_bytes), 0.9 * 2 * peak_live_bytes(profile));
  for (const SimResult& one : r.jobs) EXPECT_NEAR(one.stall_us, 0, 0.01 * one.ideal_us);
}

}  // namespace
}  // namespace sentinel::sim
