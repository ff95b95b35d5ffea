// Reads `--jobs`, plans the trainings, and simulates them together.
#include "planning/jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <sstream>

#include "base/failure.h"
#include "base/units.h"
#include "cli/form.h"
#include "cli/inputs.h"
#include "plan/check/verify.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "trace/read_any.h"

namespace sentinel::cli {
namespace {

constexpr const char* kUsage =
    "--jobs {}: write FILE@TIME for each job, as a.sentinel@0,b.sentinel@5s, and @N% behind it to "
    "bound its share of the swaps";

double number_of(std::string_view text, const std::string& whole, std::string_view& unit) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0) || value > 1e12)
    throw UsageError(fmt::format(kUsage, whole));
  unit = text.substr(static_cast<std::size_t>(end - text.data()));
  return value;
}

double parse_start_us(std::string_view text, const std::string& whole) {
  std::string_view unit;
  const double value = number_of(text, whole, unit);
  if (unit.empty() || unit == "s") return value * 1e6;
  if (unit == "ms") return value * 1e3;
  if (unit == "us") return value;
  throw UsageError(fmt::format(kUsage, whole));
}

double parse_share(std::string_view text, const std::string& whole) {
  std::string_view unit;
  const double value = number_of(text, whole, unit);
  if (unit != "%" || value > 100) throw UsageError(fmt::format(kUsage, whole));
  return value / 100;
}

// From the right, since a file's name may hold the sign, too.
JobSpec parse_job(const std::string& text, const std::string& file) {
  JobSpec job;
  auto at = text.rfind('@');
  if (at == std::string::npos) throw UsageError(fmt::format(kUsage, text));
  std::string rest = text;
  if (rest.ends_with('%')) {
    job.swap_share = parse_share(std::string_view(rest).substr(at + 1), text);
    rest.resize(at);
    at = rest.rfind('@');
    if (at == std::string::npos) throw UsageError(fmt::format(kUsage, text));
  }
  job.start_us = parse_start_us(std::string_view(rest).substr(at + 1), text);
  job.file = at == 0 ? file : rest.substr(0, at);
  return job;
}

std::vector<PlannedJob> planned_jobs(const JobsScenario& s) {
  std::vector<PlannedJob> jobs;
  for (std::size_t i = 0; i < s.jobs.size(); ++i)
    jobs.push_back({&s.profiles[i], s.jobs[i].start_us, s.jobs[i].swap_share});
  return jobs;
}

// Online policies know nothing of each other: each has a part of the budget by its job's peak.
std::vector<std::unique_ptr<Controller>> prepare_each(const JobsScenario& s, OnlinePolicy& policy) {
  double sum = 0;
  for (const Profile& p : s.profiles) sum += static_cast<double>(peak_live_bytes(p));
  std::vector<std::unique_ptr<Controller>> controllers;
  for (const Profile& p : s.profiles) {
    PlanOptions own = s.plan;
    own.fast_bytes = static_cast<std::uint64_t>(static_cast<double>(s.plan.fast_bytes) *
                                                static_cast<double>(peak_live_bytes(p)) / sum);
    controllers.push_back(policy.prepare(p, s.machine, own));
  }
  return controllers;
}

struct Prepared {
  std::vector<std::unique_ptr<Controller>> controllers;
  std::vector<Plan> plans;                    // empty for online policies
  std::vector<std::vector<TensorId>> absent;  // per job
  std::uint64_t fast_bytes = 0;
};

Prepared prepare(const JobsScenario& s, Policy& policy) {
  Prepared prepared{.absent = std::vector<std::vector<TensorId>>(s.jobs.size()),
                    .fast_bytes = policy.ignores_budget() ? 0 : s.plan.fast_bytes};
  if (auto* planned = dynamic_cast<PlannedPolicy*>(&policy)) {
    const auto jobs = planned_jobs(s);
    PlanOptions options = s.plan;
    options.parts = false;  // the jobs' profiles are simulated as they are
    prepared.plans = planned->plan_jobs(jobs, s.machine, options);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      prepared.absent[i] = plan::absent_at_start(prepared.plans[i], s.profiles[i]);
      if (policy.ignores_budget()) prepared.fast_bytes += prepared.plans[i].fast_bytes;
    }
    prepared.controllers = planned->control_jobs(jobs, prepared.plans, s.machine, options);
  } else if (auto* online = dynamic_cast<OnlinePolicy*>(&policy)) {
    prepared.controllers = prepare_each(s, *online);
  } else {
    throw Error(fmt::format("policy {} cannot run several jobs", policy.name()));
  }
  return prepared;
}

sim::JobsResult simulated(const JobsScenario& s, const Prepared& prepared) {
  std::vector<sim::Job> jobs;
  for (std::size_t i = 0; i < s.jobs.size(); ++i) {
    jobs.push_back({.profile = &s.profiles[i],
                    .controller = prepared.controllers[i].get(),
                    .start_us = s.jobs[i].start_us,
                    .steps = s.steps,
                    .absent = prepared.absent[i]});
    if (!prepared.plans.empty()) jobs.back().placements = prepared.plans[i].placements;
  }
  return sim::simulate_jobs(
      jobs, s.machine,
      {.fast_bytes = prepared.fast_bytes, .steps = s.steps, .noise = s.noise, .seed = s.plan.seed});
}

sim::JobsResult plain(const JobsScenario& s) {
  Prepared nothing{.absent = std::vector<std::vector<TensorId>>(s.jobs.size())};
  std::uint64_t enough = 0;
  for (const Profile& p : s.profiles) {
    nothing.controllers.push_back(walk(Plan{}));
    enough += peak_live_bytes(p) + p.tensors.size() * s.machine.granule_bytes;
  }
  nothing.fast_bytes = std::max(enough, s.machine.granule_bytes);
  return simulated(s, nothing);
}

}  // namespace

std::vector<JobSpec> parse_jobs(const std::string& text, const std::string& file) {
  std::vector<JobSpec> jobs;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) jobs.push_back(parse_job(part, file));
  if (jobs.empty()) throw UsageError(fmt::format(kUsage, text));
  return jobs;
}

void load(JobsScenario& s) {
  for (const JobSpec& job : s.jobs) {
    s.profiles.push_back(read_any(job.file));
    if (s.profiles.back().ops.empty())
      throw Error(fmt::format("{} holds no operation: there is nothing to simulate", job.file));
  }
}

std::uint64_t jobs_budget_bytes(const std::string& fast, const JobsScenario& s) {
  if (!fast.ends_with('%')) return budget_bytes(fast, s.profiles.front(), s.machine);
  std::uint64_t bytes = 0;
  for (const Profile& p : s.profiles) bytes += budget_bytes(fast, p, s.machine);
  return bytes;
}

JobsTrial try_jobs(const JobsScenario& s, const std::string& name) {
  JobsTrial trial{.policy = name, .plain = plain(s)};
  const auto begin = std::chrono::steady_clock::now();
  try {
    const auto policy = make_policy(name);
    const Prepared prepared = prepare(s, *policy);
    trial.plan_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    trial.result = simulated(s, prepared);
  } catch (const std::exception& error) {
    trial.reason = in_words(error);
  }
  return trial;
}

JobsMeasures measures(const JobsTrial& trial) {
  constexpr double kRounding = 1e-6;  // of the time: what sums and touching intervals lose
  const auto steps = [](const sim::JobsResult& r) {
    double sum = 0;
    for (const auto& job : r.jobs)
      for (double us : job.step_times_us) sum += us;
    return sum;
  };
  const auto peak = [](const sim::JobsResult& r) { return static_cast<double>(r.peak_fast_bytes); };
  JobsMeasures m;
  // Jobs that use no memory save none, and those that take no time lose none.
  if (peak(trial.plain) > 0) m.msr = 1 - peak(*trial.result) / peak(trial.plain);
  if (steps(trial.plain) > 0) m.eor = steps(*trial.result) / steps(trial.plain) - 1;
  if (m.eor > kRounding)
    m.cbr = m.msr / m.eor;
  else if (m.eor > -kRounding)
    m.eor = 0;
  return m;
}

}  // namespace sentinel::cli
