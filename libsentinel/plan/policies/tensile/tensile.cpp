// TENSILE (Zhang et al., "TENSILE: A Tensor granularity dynamic GPU memory scheduler method towards
// multitasking dynamic workloads system", arXiv:2105.13336).
//
// Modelled: the peak of all jobs together, as the sum of their own; the largest tensor at it
// swapped out as early and in as late as a channel with one transfer at a time allows, and only
// where nothing has to wait; swaps over the step's end and of the optimizer's state; copies in the
// host kept until the last access; triggers as an op and a delay; a maximum share of the swaps for
// each job; recomputation by memory saved per second where swapping does not get below the budget,
// of what nothing has moved; op times predicted for jobs that have not run, then averaged
// exponentially as they are measured; plans made anew when a job comes, goes, or its times drift,
// and used from its next step on.
//
// It aims at the lowest peak, not at the budget: tensors are swapped although everything fits, as
// long as that costs no time ("below-budget" leaves this out, and then it stops at the budget).
// Left out: how the jobs' processes talk to each other. Added: where the paper's executor would
// swap passively, waits are part of the plan, so that it holds its budget.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "plan/policies/tensile/scheduler.h"
#include "plan/step/op_times.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel::plan {
namespace {

constexpr std::array kFeatures{tensile::kAcrossSteps, tensile::kRecompute, tensile::kBelowBudget};

// A bound on how often jobs that drift are planned anew, beside their coming and going.
constexpr std::uint32_t kMostDrifts = 64;

// Alone on the machine, per job.
std::vector<std::vector<double>> op_times(std::span<const PlannedJob> jobs,
                                          const Machine& machine) {
  TimePredictor predictor;
  for (const PlannedJob& job : jobs) predictor.learn(*job.profile);
  std::vector<std::vector<double>> times;
  for (const PlannedJob& job : jobs) {
    const bool known = timed(*job.profile);
    auto& us = times.emplace_back();
    for (const Op& op : job.profile->ops)
      us.push_back(known ? op.us : predictor.us(*job.profile, op, machine));
  }
  return times;
}

// The memory scheduler of the paper: what the controllers of jobs on one machine have in common.
class Jobs {
 public:
  Jobs(std::span<const PlannedJob> jobs, std::vector<Plan> plans, const Machine& machine,
       const PlanOptions& options)
      : machine_(machine), options_(options) {
    auto times = op_times(jobs, machine);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      times_scaled_to_ = static_cast<double>(jobs.size());
      for (double& us : times[i]) us *= times_scaled_to_;
      members_.push_back({jobs[i], AveragedTimes(std::move(times[i])), std::move(plans[i])});
      planned_for_.push_back(i);
    }
  }

  // Jobs that arrive at the same time are planned for together.
  void arrive(std::size_t index) {
    for (Member& m : members_)
      if (m.state == State::expected && m.job.start_us <= members_[index].job.start_us)
        m.state = State::here;
    if (here() != planned_for_) plan_anew();
  }

  void step_ended(std::size_t index, std::span<const double> op_us, bool last) {
    Member& member = members_[index];
    member.times.measured(op_us);
    if (last) member.state = State::gone;
    const bool drifts = member.times.drifted() && drifts_ < kMostDrifts;
    if (last || drifts) plan_anew();
    if (drifts && !last) ++drifts_;
  }

  // The plan to use from this step on; nothing if it is still the same.
  std::optional<Plan> new_plan(std::size_t index) {
    return std::exchange(members_[index].plan, {});
  }

 private:
  enum class State { expected, here, gone };
  struct Member {
    PlannedJob job;
    AveragedTimes times;       // among the jobs that are here
    std::optional<Plan> plan;  // not in use yet
    State state = State::expected;
  };

  std::vector<std::size_t> here() const {
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < members_.size(); ++i)
      if (members_[i].state == State::here) indices.push_back(i);
    return indices;
  }

  void plan_anew() {
    planned_for_ = here();
    if (planned_for_.empty()) return;
    const auto sharing = static_cast<double>(planned_for_.size());
    for (Member& m : members_) m.times.scale(sharing / times_scaled_to_);
    times_scaled_to_ = sharing;
    std::vector<tensile::ScheduledJob> scheduled;
    for (std::size_t i : planned_for_) {
      Member& m = members_[i];
      m.times.plan_made();
      scheduled.push_back({m.job.profile, m.times.us(), m.job.start_us, m.job.swap_share});
    }
    try {
      auto plans = tensile::schedule(scheduled, machine_, options_);
      for (std::size_t i = 0; i < plans.size(); ++i)
        members_[planned_for_[i]].plan = std::move(plans[i]);
    } catch (const Error&) {
      // All of them at once need more than there is: each goes on with the plan it has.
    }
  }

  Machine machine_;
  PlanOptions options_;
  std::vector<Member> members_;
  std::vector<std::size_t> planned_for_;
  double times_scaled_to_ = 1;  // jobs that share the machine's compute in the members' times
  std::uint32_t drifts_ = 0;
};

// One job's executor: applies the newest plan from its next step on, reports what it measures.
class JobController final : public Controller {
 public:
  JobController(std::shared_ptr<Jobs> jobs, std::size_t index)
      : jobs_(std::move(jobs)), index_(index) {}

  void op_start(OpId op, std::vector<Move>& out) override {
    if (op == OpId(0)) begin_step();
    walk_->op_start(op, out);
  }
  void op_end(OpId op, std::vector<Move>& out) override { walk_->op_end(op, out); }
  std::span<const Recompute> replays(OpId op) override { return walk_->replays(op); }
  void step_end(std::span<const double> op_us, bool last) override {
    jobs_->step_ended(index_, op_us, last);
  }

 private:
  void begin_step() {
    if (!walk_) jobs_->arrive(index_);
    if (auto plan = jobs_->new_plan(index_)) walk_ = walk(std::move(*plan));
  }

  std::shared_ptr<Jobs> jobs_;
  std::size_t index_;
  std::unique_ptr<Controller> walk_;
};

class TensilePolicy final : public PlannedPolicy {
 public:
  std::string_view name() const override { return "tensile"; }
  std::span<const std::string_view> features() const override { return kFeatures; }

  Plan plan(const Profile& profile, const Machine& machine, const PlanOptions& options) override {
    const PlannedJob job{.profile = &profile};
    return std::move(plan_jobs({&job, 1}, machine, options).front());
  }

  std::vector<Plan> plan_jobs(std::span<const PlannedJob> jobs, const Machine& machine,
                              const PlanOptions& options) override {
    check_features(*this, options);
    auto times = op_times(jobs, machine);
    std::vector<tensile::ScheduledJob> scheduled;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      for (double& us : times[i]) us *= static_cast<double>(jobs.size());
      scheduled.push_back(
          {jobs[i].profile, std::move(times[i]), jobs[i].start_us, jobs[i].swap_share});
    }
    return tensile::schedule(scheduled, machine, options);
  }

  std::vector<std::unique_ptr<Controller>> control_jobs(std::span<const PlannedJob> jobs,
                                                        std::vector<Plan> plans,
                                                        const Machine& machine,
                                                        const PlanOptions& options) override {
    const auto shared = std::make_shared<Jobs>(jobs, std::move(plans), machine, options);
    std::vector<std::unique_ptr<Controller>> controllers;
    for (std::size_t i = 0; i < jobs.size(); ++i)
      controllers.push_back(std::make_unique<JobController>(shared, i));
    return controllers;
  }
};

}  // namespace

std::unique_ptr<Policy> make_tensile() { return std::make_unique<TensilePolicy>(); }

}  // namespace sentinel::plan
