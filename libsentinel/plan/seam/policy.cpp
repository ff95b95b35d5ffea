// What all policies share.
#include "sentinel/policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "sentinel/analysis.h"
#include "sentinel/error.h"

namespace sentinel {

void check_features(const Policy& policy, const PlanOptions& options) {
  const auto known = policy.features();
  for (const std::string& feature : options.without)
    if (std::ranges::find(known, feature) == known.end())
      throw Error(fmt::format("policy {} has no feature \"{}\" to leave out; it has {}",
                              policy.name(), feature,
                              known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
}

bool uses(const PlanOptions& options, std::string_view feature) {
  return std::ranges::find(options.without, feature) == options.without.end();
}

std::vector<Plan> PlannedPolicy::plan_jobs(std::span<const PlannedJob> jobs, const Machine& machine,
                                           const PlanOptions& options) {
  double sum = 0;
  for (const PlannedJob& job : jobs) sum += static_cast<double>(peak_live_bytes(*job.profile));
  std::vector<Plan> plans;
  for (const PlannedJob& job : jobs) {
    PlanOptions own = options;
    const double share = sum > 0 ? static_cast<double>(peak_live_bytes(*job.profile)) / sum : 1;
    own.fast_bytes = static_cast<std::uint64_t>(share * static_cast<double>(options.fast_bytes));
    plans.push_back(plan(*job.profile, machine, own));
  }
  return plans;
}

std::vector<std::unique_ptr<Controller>> PlannedPolicy::control_jobs(std::span<const PlannedJob>,
                                                                     std::vector<Plan> plans,
                                                                     const Machine&,
                                                                     const PlanOptions&) {
  std::vector<std::unique_ptr<Controller>> controllers;
  for (Plan& plan : plans) controllers.push_back(walk(std::move(plan)));
  return controllers;
}

}  // namespace sentinel
