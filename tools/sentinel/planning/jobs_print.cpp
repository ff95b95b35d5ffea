// Trials of several jobs as the table of a terminal and as JSON: the same fields for all
// jobs together, sums of theirs, and the same for each job under "jobs".
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/units.h"
#include "planning/jobs.h"
#include "sentinel/analysis.h"
#include "trace/json.h"

namespace sentinel::cli {
namespace {

using Json = nlohmann::ordered_json;

Json traffic_json(const std::vector<sim::Traffic>& traffic) {
  Json list = Json::array();
  for (const auto& t : traffic)
    list.push_back({{"from", t.from}, {"to", t.to}, {"bytes", t.bytes}});
  return list;
}

// Times, bytes and counts of the jobs' last steps added up; the peak is that of all together.
sim::SimResult together(const sim::JobsResult& result) {
  sim::SimResult sum{.peak_fast_bytes = result.peak_fast_bytes};
  std::map<std::pair<std::string, std::string>, std::uint64_t> traffic;
  for (const auto& job : result.jobs) {
    sum.step_us += job.step_us;
    sum.ideal_us += job.ideal_us;
    sum.stall_us += job.stall_us;
    sum.recompute_us += job.recompute_us;
    sum.shared_us += job.shared_us;
    sum.demand_faults += job.demand_faults;
    sum.streamed_ops += job.streamed_ops;
    for (const auto& t : job.traffic) traffic[{t.from, t.to}] += t.bytes;
  }
  for (const auto& [way, bytes] : traffic) sum.traffic.push_back({way.first, way.second, bytes});
  return sum;
}

Json fields(const sim::SimResult& r) {
  return {{"feasible", true},
          {"step_us", r.step_us},
          {"ideal_us", r.ideal_us},
          {"normalized_throughput", r.timed() ? Json(r.normalized_throughput()) : Json(nullptr)},
          {"lower_bound_us", r.ideal_us},
          {"swap_lower_bound_us", r.ideal_us},
          {"stall_us", r.stall_us},
          {"recompute_us", r.recompute_us},
          {"shared_us", r.shared_us},
          {"peak_fast_bytes", r.peak_fast_bytes},
          {"demand_faults", r.demand_faults},
          {"streamed_ops", r.streamed_ops},
          {"traffic", traffic_json(r.traffic)}};
}

Json job_json(const JobsScenario& s, const JobsTrial& trial, std::size_t i) {
  const auto& r = trial.result->jobs[i];
  Json json{{"file", s.jobs[i].file},
            {"model", s.profiles[i].meta.model},
            {"start_us", s.jobs[i].start_us},
            {"end_us", trial.result->end_us[i]}};
  json.update(fields(r));
  json["step_times_us"] = r.step_times_us;
  json["plain_step_us"] = trial.plain.jobs[i].step_us;
  return json;
}

Json trial_json(const JobsScenario& s, const JobsTrial& trial) {
  Json json{{"policy", trial.policy}};
  if (!trial.result) {
    json.update({{"feasible", false}, {"reason", trial.reason}});
    for (const char* field : {"step_us", "ideal_us", "normalized_throughput", "lower_bound_us",
                              "swap_lower_bound_us", "stall_us", "recompute_us", "plan_ms",
                              "peak_fast_bytes", "demand_faults", "msr", "eor", "cbr"})
      json[field] = nullptr;
    json["traffic"] = json["jobs"] = Json::array();
    return json;
  }
  const JobsMeasures m = measures(trial);
  json.update(fields(together(*trial.result)));
  json["plan_ms"] = trial.plan_ms;
  json["plain_step_us"] = together(trial.plain).step_us;
  json["plain_peak_bytes"] = trial.plain.peak_fast_bytes;
  json["msr"] = m.msr;
  json["eor"] =
      trial.result->jobs.empty() || !together(*trial.result).timed() ? Json(nullptr) : Json(m.eor);
  json["cbr"] = m.cbr ? Json(*m.cbr) : Json(nullptr);
  json["jobs"] = Json::array();
  for (std::size_t i = 0; i < s.jobs.size(); ++i) json["jobs"].push_back(job_json(s, trial, i));
  return json;
}

std::string rows(const JobsScenario& s, const JobsTrial& trial, std::size_t width) {
  if (!trial.result)
    return fmt::format("{:<{}}  not feasible: {}\n", trial.policy, width, printable(trial.reason));
  const JobsMeasures m = measures(trial);
  const auto sum = together(*trial.result);
  const auto row = [&](const std::string& label, const sim::SimResult& r, double plain_us) {
    return fmt::format("{:<{}}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}", label, width,
                       print_us(r.step_us), print_us(plain_us), print_us(r.stall_us),
                       print_us(r.recompute_us), print_bytes(r.peak_fast_bytes));
  };
  std::string text =
      row(trial.policy, sum, together(trial.plain).step_us) +
      fmt::format("  {:>6.3f}  {:>6}  {:>6}\n", m.msr,
                  sum.timed() ? fmt::format("{:.3f}", m.eor) : std::string("-"),
                  sum.timed() && m.cbr ? fmt::format("{:.2f}", *m.cbr) : std::string("-"));
  for (std::size_t i = 0; i < s.jobs.size(); ++i)
    text +=
        row(fmt::format("  job {}", i + 1), trial.result->jobs[i], trial.plain.jobs[i].step_us) +
        "\n";
  return text;
}

}  // namespace

std::string jobs_text(const JobsScenario& s, const std::vector<JobsTrial>& trials) {
  std::size_t width = 8;
  for (const auto& trial : trials) width = std::max(width, trial.policy.size());
  std::string text = fmt::format("{} jobs on {}: {} of fast memory\n", s.jobs.size(),
                                 printable(s.machine.name), print_bytes(s.plan.fast_bytes));
  for (std::size_t i = 0; i < s.jobs.size(); ++i)
    text += fmt::format("  job {}: {}, from {} on, unlimited peak {}\n", i + 1,
                        printable(s.jobs[i].file), print_us(s.jobs[i].start_us),
                        print_bytes(peak_live_bytes(s.profiles[i])));
  text += fmt::format("\n{:<{}}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>6}  {:>6}  {:>6}\n",
                      "policy", width, "step", "unlimited", "stalled", "recompute", "peak fast",
                      "MSR", "EOR", "CBR");
  for (const auto& trial : trials) text += rows(s, trial, width);
  return text +
         "\nTimes of a policy are sums over its jobs. MSR: memory saved. EOR: time lost. CBR: "
         "saved over lost.\n";
}

std::string jobs_json(const JobsScenario& s, const std::string& file,
                      const std::vector<JobsTrial>& trials) {
  std::uint64_t ops = 0, tensors = 0, peak = 0;
  for (const Profile& p : s.profiles) {
    ops += p.ops.size();
    tensors += p.tensors.size();
    peak += peak_live_bytes(p);
  }
  Json json{{"trace",
             {{"file", file},
              {"model", s.profiles.front().meta.model},
              {"batch", s.profiles.front().meta.batch},
              {"ops", ops},
              {"tensors", tensors},
              {"peak_bytes", peak}}},
            {"machine", s.machine.name},
            {"fast_bytes", s.plan.fast_bytes},
            {"results", Json::array()}};
  for (const auto& trial : trials) json["results"].push_back(trial_json(s, trial));
  return json_text(json, 1) + "\n";
}

}  // namespace sentinel::cli
