#include "simulation.h"

#include <cmath>
#include <utility>

#include "base/units.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sim/run.h"

namespace sentinel::cli {
namespace {

// Sums of many times differ in their last bits with the order of summing.
void settle_rounding(sim::SimResult& result) {
  constexpr double kRounding = 1e-9;
  if (std::abs(result.stall_us) < kRounding * result.step_us) result.stall_us = 0;
  if (std::abs(result.step_us - result.ideal_us) > kRounding * result.ideal_us) return;
  result.step_us = result.ideal_us;
  result.stall_us = 0;
}

}  // namespace

Trial try_policy(const Scenario& s, const std::string& name) {
  Trial trial{.policy = name, .fast_bytes = s.plan.fast_bytes};
  try {
    auto run = sim::run(*make_policy(name), s.profile, s.machine, s.plan,
                        {.steps = s.steps, .noise = s.noise, .seed = s.plan.seed});
    trial.plan_ms = run.plan_ms;
    trial.result = std::move(run.result);
    settle_rounding(*trial.result);
  } catch (const Error& error) {
    trial.reason = error.what();
  }
  return trial;
}

std::optional<Trial> smallest_budget(const Scenario& scenario, const std::string& policy,
                                     double target) {
  const auto granule = scenario.machine.granule_bytes;
  const auto at = [&](std::uint64_t granules) {
    auto s = scenario;
    s.plan.fast_bytes = granules * granule;
    return try_policy(s, policy);
  };
  const auto reaches = [&](const Trial& trial) {
    return trial.result && trial.result->normalized_throughput() >= target;
  };
  // Twice the peak covers what granules and frames in flight add to it.
  std::uint64_t least = 0, enough = 2 * peak_live_bytes(scenario.profile) / granule + 64;
  auto best = at(enough);
  if (!reaches(best)) return std::nullopt;
  while (enough - least > 1 + enough / 512) {
    const auto middle = least + (enough - least) / 2;
    auto trial = at(middle);
    if (reaches(trial))
      enough = middle, best = std::move(trial);
    else
      least = middle;
  }
  return best;
}

}  // namespace sentinel::cli
