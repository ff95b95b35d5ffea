// Advances jobs and fabric from event to event until all steps are over.
#include "sim/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <queue>

#include "base/units.h"
#include "plan/check/verify.h"
#include "plan/step/parts.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sim/fluid/commons.h"
#include "sim/job/job_run.h"

namespace sentinel::sim {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Drives the jobs over one clock: each goes on as far as it can, then time moves to what comes
// next: a transfer's end, an op's end, a move that was put off, a job's arrival.
class Simulation {
 public:
  Simulation(std::span<const Job> jobs, const Machine& machine, const SimOptions& options)
      : commons_(machine, options) {
    for (std::size_t i = 0; i < jobs.size(); ++i)
      runs_.push_back(std::make_unique<JobRun>(jobs[i], commons_, options, i));
  }

  JobsResult run() {
    while (true) {
      proceed();
      if (std::ranges::all_of(runs_, &JobRun::done)) break;
      if (!make_way()) advance();
    }
    JobsResult result{.peak_fast_bytes = commons_.peak()};
    for (auto& run : runs_) {
      result.end_us.push_back(run->end_us());
      result.jobs.push_back(run->take_result());
    }
    return result;
  }

 private:
  // Room that one job gives up may be what an earlier one waits for.
  void proceed() {
    std::uint64_t before = 0;
    do {
      before = commons_.times_given();
      for (auto& run : runs_) run->proceed();
    } while (runs_.size() > 1 && commons_.times_given() != before);
  }

  // A job that waits, with nothing of its own under way, has to be helped: by what it or else
  // another job can do without. What computes gives up its operands in time; only where nothing
  // does is an op streamed. True if anything changed.
  bool make_way() {
    bool changed = false;
    for (auto& run : runs_)
      if (run->waits() && !run->transfers()) changed |= put_out_for(*run);
    if (changed || !commons_.idle() || std::ranges::any_of(runs_, &JobRun::computes))
      return changed;
    const auto waiting = std::ranges::find_if(runs_, &JobRun::waits);
    if (waiting == runs_.end()) return false;
    (*waiting)->stream_rest();
    return true;
  }

  bool put_out_for(JobRun& waiting) {
    if (const StorageId own = waiting.longest_unused(); own != Residence::kNone) {
      waiting.put_out(own);
      return true;
    }
    for (auto& other : runs_) {
      if (other.get() == &waiting || other->transfers()) continue;
      const StorageId victim = other->longest_unused();
      if (victim == Residence::kNone) continue;
      other->put_out(victim);
      return true;
    }
    return false;
  }

  void advance() {
    // Equal parts of what moving leaves: microseconds that pass for one of computation.
    const auto pace = static_cast<double>(std::ranges::count_if(runs_, &JobRun::computes)) /
                      commons_.compute_share();
    const double now = commons_.now_us();
    double next = commons_.next_event_us();
    for (const auto& run : runs_) {
      if (run->computes()) next = std::min(next, now + run->left_us() * pace);
      next = std::min(next, run->next_event_us());
    }
    if (next == kNever) throw Error("the simulation is stuck: nothing is left to wait for");
    next = std::max(next, now);
    for (auto& run : runs_)
      if (run->computes()) run->compute((next - now) / pace);
    commons_.advance_to(next);
  }

  Commons commons_;
  std::vector<std::unique_ptr<JobRun>> runs_;
};

void check(const Machine& machine, const SimOptions& options) {
  if (machine.tiers.size() < 2)
    throw Error(fmt::format("machine {} has no slower tier", machine.name));
  if (options.fast_bytes < machine.granule_bytes)
    throw Error(
        fmt::format("{} of fast memory do not hold one granule", print_bytes(options.fast_bytes)));
}

}  // namespace

SimResult simulate(const Profile& profile, const Machine& machine, Controller& controller,
                   const SimOptions& options) {
  const Job job{.profile = &profile,
                .controller = &controller,
                .steps = options.steps,
                .placements = options.placements,
                .absent = options.absent};
  return simulate_jobs({&job, 1}, machine, options).jobs.front();
}

SimResult simulate(const Profile& profile, const Machine& machine, const Plan& plan,
                   SimOptions options) {
  if (plan.part_bytes != 0) {
    Plan cut = plan;
    cut.part_bytes = 0;
    return simulate(plan::in_parts(profile, plan.part_bytes), machine, cut, options);
  }
  const auto controller = walk(plan);
  const auto absent = plan::absent_at_start(plan, profile);
  options.fast_bytes = plan.fast_bytes;
  options.placements = plan.placements;
  options.absent = absent;
  return simulate(profile, machine, *controller, options);
}

Judge judge() {
  return [](const Profile& profile, const Machine& machine, const Plan& plan) {
    SimResult r = simulate(profile, machine, plan, {.steps = 2});
    std::uint64_t in = 0, out = 0;
    for (const Traffic& t : r.traffic) {
      in += t.to == machine.tiers[0].name ? t.bytes : 0;
      out += t.from == machine.tiers[0].name ? t.bytes : 0;
    }
    return Verdict{.step_us = r.step_us,
                   .op_stall_us = std::move(r.op_stall_us),
                   .demand_faults = r.demand_faults,
                   .evictions = r.evictions,
                   .in_bytes = in,
                   .out_bytes = out};
  };
}

JobsResult simulate_jobs(std::span<const Job> jobs, const Machine& machine,
                         const SimOptions& options) {
  check(machine, options);
  return Simulation(jobs, machine, options).run();
}

}  // namespace sentinel::sim
