// Plans where the policy makes plans, and simulates what it made.
#include "sim/run.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "plan/check/verify.h"
#include "sentinel/error.h"
#include "sentinel/paging.h"
#include "sim/paging.h"

namespace sentinel::sim {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

Run run_planned(PlannedPolicy& policy, const Profile& profile, const Machine& machine,
                const PlanOptions& plan_options, const SimOptions& options) {
  const auto begin = Clock::now();
  Run run{.plan = policy.plan(profile, machine, plan_options)};
  run.plan_ms = ms_since(begin);
  if (const auto wrong = plan::verify(*run.plan, profile, machine); !wrong.empty())
    throw Error(fmt::format("the plan is not valid ({} objections), for one: {}", wrong.size(),
                            wrong.front()));
  run.result = simulate(profile, machine, *run.plan, options);
  return run;
}

Run run_online(OnlinePolicy& policy, const Profile& profile, const Machine& machine,
               const PlanOptions& plan_options, const SimOptions& options) {
  const auto begin = Clock::now();
  const auto controller = policy.prepare(profile, machine, plan_options);
  Run run{.plan_ms = ms_since(begin)};
  run.result = simulate(profile, machine, *controller, options);
  return run;
}

}  // namespace

Run run(Policy& policy, const Profile& profile, const Machine& machine, PlanOptions plan_options,
        SimOptions options) {
  check_features(policy, plan_options);
  options.fast_bytes = plan_options.fast_bytes;
  if (!plan_options.judge) plan_options.judge = judge();
  if (auto* planned = dynamic_cast<PlannedPolicy*>(&policy))
    return run_planned(*planned, profile, machine, plan_options, options);
  if (auto* online = dynamic_cast<OnlinePolicy*>(&policy))
    return run_online(*online, profile, machine, plan_options, options);
  options.time_limit_s = plan_options.time_limit_s;
  if (auto* paged = dynamic_cast<PagedPolicy*>(&policy))
    return {.result = simulate(profile, machine, *paged, plan_options, options)};
  throw Error(fmt::format("policy {} is of a kind that cannot be simulated", policy.name()));
}

}  // namespace sentinel::sim
