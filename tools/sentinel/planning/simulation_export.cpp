// Trials as rows of a spreadsheet and as a page.
#include <fmt/format.h>

#include <sstream>

#include "base/checked.h"
#include "planning/simulation.h"
#include "report/text/csv.h"

namespace sentinel::cli {
namespace {

std::string words(const PolicyTrial& trial) {
  auto text = trial.variant;
  if (!trial.without.empty()) text += (text.empty() ? "without " : " without ") + trial.without;
  return text;
}

constexpr std::size_t kThroughput = 8;  // column of the ratio

std::vector<std::string> csv_fields(const PolicyTrial& trial) {
  std::vector<std::string> fields{csv_text(trial.policy),   csv_text(trial.variant),
                                  csv_text(trial.without),  fmt::format("{}", trial.fast_bytes),
                                  trial.result ? "1" : "0", csv_text(trial.reason)};
  if (!trial.result) {
    fields.resize(fields.size() + 11);
    return fields;
  }
  const auto& r = *trial.result;
  std::uint64_t moved = 0;
  for (const auto& traffic : r.traffic) moved = saturated_sum(moved, traffic.bytes);
  for (const double number :
       {r.step_us, r.ideal_us, r.normalized_throughput(), trial.lower_bound_us,
        trial.swap_lower_bound_us, r.stall_us, r.recompute_us, trial.plan_ms})
    fields.push_back(fmt::format("{}", number));
  if (!r.timed()) fields[kThroughput].clear();
  for (const std::uint64_t number : {r.peak_fast_bytes, r.demand_faults, moved})
    fields.push_back(fmt::format("{}", number));
  return fields;
}

}  // namespace

std::string trials_csv(const std::vector<PolicyTrial>& trials) {
  auto text = csv_line({"policy", "sweep", "without", "fast_bytes", "feasible", "reason", "step_us",
                        "ideal_us", "normalized_throughput", "lower_bound_us",
                        "swap_lower_bound_us", "stall_us", "recompute_us", "plan_ms",
                        "peak_fast_bytes", "demand_faults", "moved_bytes"});
  for (const auto& trial : trials) text += csv_line(csv_fields(trial));
  return text;
}

std::string trials_html(const Scenario& s, const std::string& swept,
                        const std::vector<PolicyTrial>& trials) {
  Comparison comparison{.profile = s.profile,
                        .machine = s.machine,
                        .fast_bytes = s.plan.fast_bytes,
                        .swept = swept,
                        .rows = {}};
  for (const auto& trial : trials)
    comparison.rows.push_back({.policy = trial.policy,
                               .variant = words(trial),
                               .at = trial.at,
                               .fast_bytes = trial.fast_bytes,
                               .result = trial.result ? &*trial.result : nullptr,
                               .reason = trial.reason,
                               .plan_ms = trial.plan_ms,
                               .lower_bound_us = trial.lower_bound_us,
                               .swap_lower_bound_us = trial.swap_lower_bound_us,
                               .strip = trial.strip ? &*trial.strip : nullptr});
  std::ostringstream text;
  comparison_html(comparison, text);
  return text.str();
}

}  // namespace sentinel::cli
