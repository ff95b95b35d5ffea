// Plans each job within several budgets, and has the simulator judge the plans.
#include "broker/server/gains.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>

#include "base/failure.h"
#include "broker/wire/message.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"
#include "sim/machine_file.h"
#include "sim/simulator.h"
#include "trace/tensor_trace.h"

namespace sentinel {
namespace {

constexpr double kSecondsAPlan = 2;
constexpr std::uint64_t kPoints = 6;  // of a curve

Machine machine_of(const StudiedJob& job) {
  auto machine = sim::find_machine(job.machine);
  machine.exclusive = true;  // as the engine does
  return machine;
}

PlanOptions options_of(std::uint64_t bytes) {
  return {.fast_bytes = bytes,
          .time_limit_s = kSecondsAPlan,
          .recompute = false,
          .judge = sim::judge(),
          .parts = false,
          .copies = false,
          .in_place = false};
}

// Of a step's traffic, on the slowest tier's drive: one that does both at once is busy with the
// way that takes longer.
double drive_us(const std::vector<sim::Traffic>& traffic, const Machine& machine) {
  const auto& drive = machine.tiers.back();
  double in_s = 0, out_s = 0;
  for (const auto& [from, to, bytes] : traffic) {
    if (from == drive.name) in_s += static_cast<double>(bytes) / drive.read_bw;
    if (to == drive.name) out_s += static_cast<double>(bytes) / drive.write_bw;
  }
  const bool one_way = std::ranges::any_of(machine.links, [&](const LinkSpec& link) {
    return link.half_duplex && std::ranges::count(link.tiers, drive.name) != 0;
  });
  return 1e6 * (one_way ? in_s + out_s : std::max(in_s, out_s));
}

// Its slowdown is in us yet.
std::optional<CurvePoint> point_at(std::uint64_t bytes, const StudiedJob& job,
                                   PlannedPolicy& policy, const Machine& machine) {
  try {
    const auto plan = policy.plan(*job.profile, machine, options_of(bytes));
    const auto step = sim::simulate(*job.profile, machine, plan, {.steps = 2});
    return CurvePoint{.bytes = bytes,
                      .slowdown = step.step_us,
                      .drive = std::min(1.0, drive_us(step.traffic, machine) / step.step_us)};
  } catch (const Error&) {
    return std::nullopt;  // too little for a plan
  }
}

std::vector<CurvePoint> curve_of(const StudiedJob& job, const std::atomic<bool>& over) {
  const auto policy = make_policy(job.policy);
  auto* planned = dynamic_cast<PlannedPolicy*>(policy.get());
  if (planned == nullptr) throw Error(fmt::format("policy {} makes no plan", job.policy));
  const auto machine = machine_of(job);
  std::vector<CurvePoint> curve;
  for (std::uint64_t i = 0; i <= kPoints; ++i) {
    if (over) throw Error("the broker ends");
    const auto bytes = job.need.least + (job.need.most - job.need.least) / kPoints * i;
    if (const auto point = point_at(i == kPoints ? job.need.most : bytes, job, *planned, machine))
      curve.push_back(*point);
  }
  if (curve.empty() || !(curve.back().slowdown > 0))
    throw Error("no plan within any budget was found");
  const double best = curve.back().slowdown;
  for (auto& point : curve) point.slowdown /= best;
  return curve;
}

// TENSILE plans jobs together, and its plans' budgets are the jobs' shares.
std::map<JobId, std::uint64_t> planned_together(const std::vector<StudiedJob>& jobs,
                                                std::uint64_t total) {
  std::map<JobId, std::uint64_t> shares;
  const bool tensile =
      std::ranges::all_of(jobs, [](const StudiedJob& job) { return job.policy == "tensile"; });
  if (!tensile || jobs.size() < 2) return shares;
  const auto policy = make_policy("tensile");
  std::vector<PlannedJob> planned;
  for (const auto& job : jobs) planned.push_back({.profile = job.profile.get()});
  const auto plans = dynamic_cast<PlannedPolicy&>(*policy).plan_jobs(
      planned, machine_of(jobs.front()), options_of(total));
  for (std::size_t i = 0; i < jobs.size(); ++i)
    shares[jobs[i].id] = std::clamp(plans[i].fast_bytes, jobs[i].need.least, jobs[i].need.most);
  return shares;
}

// What a curve depends on, in words.
std::string key_of(const StudiedJob& job) {
  return fmt::format("{}:{}:{}:{}:{}", job.digest, job.need.least, job.need.most, job.policy,
                     job.machine);
}

}  // namespace

void KnownCurves::keep(const StudiedJob& job, std::vector<CurvePoint> curve) {
  if (curves_.size() >= kMost) curves_.erase(curves_.begin());
  curves_[key_of(job)] = std::move(curve);
}

std::optional<std::vector<CurvePoint>> KnownCurves::find(const StudiedJob& job) const {
  const auto found = curves_.find(key_of(job));
  return found == curves_.end() ? std::nullopt : std::optional(found->second);
}

Findings study_jobs(const std::vector<StudiedJob>& jobs, std::uint64_t total,
                    const std::atomic<bool>& over) {
  Findings found;
  for (const auto& job : jobs) {
    if (!job.wants_curve || over) continue;
    try {
      found.curves[job.id] = curve_of(job, over);
    } catch (const std::exception& error) {
      if (over) break;
      found.curves[job.id] = {};
      found.failures.push_back(in_words(error));
    }
  }
  if (!over) try {
      found.shares = planned_together(jobs, total);
    } catch (const std::exception& error) {
      found.failures.push_back(in_words(error));
    }
  return found;
}

std::shared_ptr<const Profile> profile_of(std::string_view trace) {
  const auto file = sealed_file(trace);
  return std::make_shared<const Profile>(
      read_tensor_trace(fmt::format("/proc/self/fd/{}", file.get())));
}

}  // namespace sentinel
