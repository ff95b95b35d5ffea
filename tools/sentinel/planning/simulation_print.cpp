// Trials as the table of a terminal and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/text.h"
#include "base/units.h"
#include "planning/simulation.h"
#include "sentinel/analysis.h"
#include "trace/json.h"

namespace sentinel::cli {
namespace {

using Json = nlohmann::ordered_json;

std::uint64_t moved_bytes(const sim::SimResult& result) {
  std::uint64_t bytes = 0;
  for (const auto& traffic : result.traffic) bytes = saturated_sum(bytes, traffic.bytes);
  return bytes;
}

std::string label(const PolicyTrial& trial) {
  auto text = trial.policy;
  if (!trial.variant.empty()) text += " " + trial.variant;
  if (!trial.without.empty()) text += " without " + trial.without;
  return printable(text);
}

std::string throughput(const sim::SimResult& result) {
  return result.timed() ? fmt::format("{:.3f}", result.normalized_throughput()) : "-";
}

std::string bound(const sim::SimResult& result, double lower_bound_us) {
  return result.timed() && lower_bound_us > 0
             ? fmt::format("{:.3f}", result.ideal_us / lower_bound_us)
             : "-";
}

std::string row(const PolicyTrial& trial, std::size_t width) {
  if (!trial.result)
    return fmt::format("{:<{}}  not feasible: {}\n", label(trial), width, printable(trial.reason));
  const auto& r = *trial.result;
  return fmt::format(
      "{:<{}}  {:>9}  {:>10}  {:>5}  {:>8}  {:>9}  {:>9}  {:>9}  {:>7}  {:>9}\n", label(trial),
      width, print_us(r.step_us), throughput(r), bound(r, trial.lower_bound_us),
      bound(r, trial.swap_lower_bound_us), print_us(r.stall_us), print_bytes(moved_bytes(r)),
      print_bytes(r.peak_fast_bytes), r.demand_faults, print_us(1e3 * trial.plan_ms));
}

// One budget, or from where to where a sweep's go.
std::string budgets(const Scenario& s, const std::vector<PolicyTrial>& trials) {
  if (trials.empty()) return print_bytes(s.plan.fast_bytes);
  const auto [least, most] = std::ranges::minmax_element(trials, {}, &PolicyTrial::fast_bytes);
  const auto from = print_bytes(least->fast_bytes), to = print_bytes(most->fast_bytes);
  return from == to ? to : fmt::format("{} to {}", from, to);
}

Json traffic_json(const sim::SimResult& result) {
  Json list = Json::array();
  for (const auto& traffic : result.traffic)
    list.push_back({{"from", traffic.from}, {"to", traffic.to}, {"bytes", traffic.bytes}});
  return list;
}

Json infeasible_json(const PolicyTrial& trial) {
  Json json{{"policy", trial.policy}, {"feasible", false}, {"reason", trial.reason}};
  for (const char* time :
       {"step_us", "ideal_us", "normalized_throughput", "lower_bound_us", "swap_lower_bound_us",
        "stall_us", "recompute_us", "plan_ms", "peak_fast_bytes", "demand_faults"})
    json[time] = nullptr;
  json["traffic"] = Json::array();
  return json;
}

Json feasible_json(const PolicyTrial& trial) {
  const auto& r = *trial.result;
  return {{"policy", trial.policy},
          {"feasible", true},
          {"step_us", r.step_us},
          {"ideal_us", r.ideal_us},
          {"normalized_throughput", r.timed() ? Json(r.normalized_throughput()) : Json(nullptr)},
          {"lower_bound_us", trial.lower_bound_us},
          {"swap_lower_bound_us", trial.swap_lower_bound_us},
          {"stall_us", r.stall_us},
          {"recompute_us", r.recompute_us},
          {"plan_ms", trial.plan_ms},
          {"peak_fast_bytes", r.peak_fast_bytes},
          {"demand_faults", r.demand_faults},
          {"streamed_ops", r.streamed_ops},
          {"traffic", traffic_json(r)}};
}

Json largest_op_json(const Scenario& s) {
  if (s.profile.ops.empty()) return nullptr;
  const auto largest = largest_op(s);
  return {{"k", largest.op.value},
          {"name", s.profile.ops[largest.op.index()].name},
          {"bytes", largest.bytes},
          {"fits", largest.fits}};
}

Json trial_json(const PolicyTrial& trial) {
  auto json = trial.result ? feasible_json(trial) : infeasible_json(trial);
  if (!trial.without.empty()) json["without"] = trial.without;
  if (trial.variant.empty()) return json;
  json["sweep"] = trial.variant;
  json["fast_bytes"] = trial.fast_bytes;
  return json;
}

}  // namespace

std::string trials_text(const Scenario& s, const std::vector<PolicyTrial>& trials) {
  std::size_t width = 6;
  for (const auto& trial : trials) width = std::max(width, label(trial).size());
  std::string text = fmt::format(
      "{} on {}: {} of fast memory, unlimited peak {}, ideal step {}\n\n"
      "{:<{}}  {:>9}  {:>10}  {:>5}  {:>8}  {:>9}  {:>9}  {:>9}  {:>7}  {:>9}\n",
      s.profile.meta.model.empty() ? "the step" : printable(s.profile.meta.model),
      printable(s.machine.name), budgets(s, trials), print_bytes(peak_live_bytes(s.profile)),
      print_us(ideal_us(s.profile)), "policy", width, "step", "throughput", "bound", "swapping",
      "stalled", "moved", "peak fast", "faults", "planning");
  for (const auto& trial : trials) text += row(trial, width);
  if (ideal_us(s.profile) <= 0)
    return text +
           "\nThe ops have no times: steps are those of moves alone, and no ratio is told.\n";
  return text +
         "\nThroughput is relative to unlimited fast memory; no plan for that budget exceeds the "
         "bound,\nnor the one beside it if it only swaps.\n";
}

std::string trials_json(const Scenario& s, const std::string& file,
                        const std::vector<PolicyTrial>& trials) {
  Json json{{"trace",
             {{"file", file},
              {"model", s.profile.meta.model},
              {"batch", s.profile.meta.batch},
              {"ops", s.profile.ops.size()},
              {"tensors", s.profile.tensors.size()},
              {"peak_bytes", peak_live_bytes(s.profile)},
              {"largest_op", largest_op_json(s)}}},
            {"machine", s.machine.name},
            {"fast_bytes", s.plan.fast_bytes},
            {"results", Json::array()}};
  for (const auto& trial : trials) json["results"].push_back(trial_json(trial));
  return json_text(json, 1) + "\n";
}

}  // namespace sentinel::cli
