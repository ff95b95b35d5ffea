// Lowers the peak of all jobs in turns: swaps, then recomputation, then waiting.
#include "plan/policies/tensile/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/clock.h"
#include "base/units.h"
#include "plan/policies/tensile/job.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel::plan::tensile {
namespace {

class JobScheduler {
 public:
  JobScheduler(std::span<const ScheduledJob> jobs, const Machine& machine,
               const PlanOptions& options)
      : options_(options), begin_(Clock::now()) {
    std::vector<Channel::Job> calendar;
    for (const ScheduledJob& job : jobs) {
      const auto index = static_cast<std::uint32_t>(jobs_.size());
      jobs_.push_back(std::make_unique<Job>(job, machine, options, index));
      calendar.push_back({job.start_us, jobs_.back()->step_us()});
    }
    channel_ = std::make_unique<Channel>(calendar);
  }

  std::vector<Plan> run(bool recompute) {
    refuse_too_small();
    swap();
    if (recompute) this->recompute();
    const auto limits = divide();
    std::vector<Plan> plans;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      jobs_[i]->give_way(limits[i]);
      plans.push_back(jobs_[i]->plan(limits[i]));
      plans.back().effort = effort_;
    }
    return plans;
  }

 private:
  bool out_of_time() const {
    return seconds_since(begin_) > options_.time_limit_s ||
           (options_.effort > 0 && effort_ >= options_.effort);
  }

  template <class Value>
  std::uint64_t sum(Value value) const {
    std::uint64_t all = 0;
    for (const auto& job : jobs_) all += value(*job);
    return all;
  }
  std::uint64_t peak() const {
    return sum([](const Job& job) { return job.peak(); });
  }

  void refuse_too_small() const {
    const std::uint64_t needed = sum([](const Job& job) { return job.most_needed(); });
    if (needed > options_.fast_bytes)
      throw Error(
          fmt::format("{} of fast memory are too few: the largest operation{} needs {} at once",
                      print_bytes(options_.fast_bytes),
                      jobs_.size() > 1 ? " of each job together" : "", print_bytes(needed)));
  }

  // Of all jobs; a job with more than its share of what is swapped waits for the others.
  bool may_swap(const Job& job) const {
    const auto all = static_cast<double>(sum([](const Job& j) { return j.swapped(); }));
    return job.swap_share() >= 1 ||
           static_cast<double>(job.swapped()) < job.swap_share() * (all + 1);
  }

  void swap() {
    const bool below = uses(options_, kBelowBudget);
    while (!out_of_time() && (below || peak() > options_.fast_bytes)) {
      Job* job = nullptr;
      std::uint32_t gap = 0;
      for (const auto& candidate : jobs_) {
        if (!may_swap(*candidate)) continue;
        const auto largest = candidate->largest_at_peak();
        if (!largest || (job && candidate->bytes(*largest) <= job->bytes(gap))) continue;
        job = candidate.get();
        gap = *largest;
      }
      if (job == nullptr) return;
      job->swap(gap, *channel_);
      ++effort_;
    }
  }

  // The job that holds most first.
  void recompute() {
    while (peak() > options_.fast_bytes && !out_of_time()) {
      std::vector<Job*> order;
      for (const auto& job : jobs_) order.push_back(job.get());
      std::ranges::stable_sort(order, std::greater{}, &Job::peak);
      if (std::ranges::none_of(order, [](Job* job) { return job->recompute(); })) return;
      ++effort_;
    }
  }

  // What each job may hold: what it needs, and of the rest as much as it would take beside.
  std::vector<std::uint64_t> divide() const {
    const std::uint64_t needed = sum([](const Job& job) { return job.most_needed(); });
    const auto rest = static_cast<double>(options_.fast_bytes - needed);
    const auto wanted = static_cast<double>(peak() - needed);
    std::vector<std::uint64_t> limits;
    for (const auto& job : jobs_) {
      const auto own = static_cast<double>(job->peak() - job->most_needed());
      const double share = jobs_.size() == 1 ? 1 : wanted > 0 ? own / wanted : 0;
      limits.push_back(job->most_needed() + static_cast<std::uint64_t>(rest * share));
    }
    return limits;
  }

  const PlanOptions& options_;
  Clock::time_point begin_;
  std::vector<std::unique_ptr<Job>> jobs_;
  std::unique_ptr<Channel> channel_;
  std::uint64_t effort_ = 0;
};

}  // namespace

std::vector<Plan> schedule(std::span<const ScheduledJob> jobs, const Machine& machine,
                           const PlanOptions& options) {
  if (machine.tiers.size() < 2)
    throw Error(fmt::format("machine {} has no slower tier to plan for", machine.name));
  for (const ScheduledJob& job : jobs)
    if (job.profile->ops.empty())
      throw Error("the profile holds no operation, so there is nothing to plan");
  const bool recompute = options.recompute && uses(options, kRecompute);
  try {
    return JobScheduler(jobs, machine, options).run(recompute);
  } catch (const Error&) {
    // What replays read has to stay: without them waiting can always make room.
    if (!recompute) throw;
    return JobScheduler(jobs, machine, options).run(false);
  }
}

}  // namespace sentinel::plan::tensile
