// Plans and simulates one policy, and searches the smallest budget for a target.
#include "planning/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/failure.h"
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

// The timeline itself may be far larger than all else.
void keep_strip(const Scenario& s, PolicyTrial& trial) {
  if (s.strip_parts == 0) return;
  auto& result = *trial.result;
  trial.strip = strip_of(result.timeline, result.step_us, lanes_of(s.machine), s.strip_parts);
  result.timeline = {};
}

}  // namespace

LargestOp largest_op(const Scenario& s) {
  const auto sets = working_set_bytes(s.profile);
  const auto largest = std::ranges::max_element(sets);
  if (largest == sets.end()) return {};
  const bool in_place = std::any_of(s.machine.tiers.begin() + 1, s.machine.tiers.end(),
                                    [](const TierSpec& t) { return t.byte_addressable; });
  return {.op = OpId(static_cast<std::size_t>(largest - sets.begin())),
          .bytes = *largest,
          .fits = in_place || *largest <= s.plan.fast_bytes};
}

std::string too_large(const Scenario& s, const LargestOp& largest) {
  return fmt::format("op {} (\"{}\") needs {} at once, more than the {} of fast memory",
                     largest.op.value, s.profile.ops[largest.op.index()].name,
                     print_bytes(largest.bytes), print_bytes(s.plan.fast_bytes));
}

PolicyTrial try_policy(const Scenario& s, const std::string& name) {
  PolicyTrial trial{.policy = name, .fast_bytes = s.plan.fast_bytes};
  try {
    auto run = sim::run(
        *make_policy(name), s.profile, s.machine, s.plan,
        {.steps = s.steps, .noise = s.noise, .seed = s.plan.seed, .timeline = s.strip_parts > 0});
    trial.plan_ms = run.plan_ms;
    trial.result = std::move(run.result);
    if (!std::isfinite(trial.result->step_us) || !std::isfinite(trial.result->stall_us))
      throw Error("the step would never end: no figure of it is a number");
    settle_rounding(*trial.result);
    keep_strip(s, trial);
  } catch (const std::exception& error) {
    trial.result.reset();
    trial.reason = in_words(error);
    if (const auto largest = largest_op(s); !largest.fits)
      trial.reason += "; " + too_large(s, largest);
  }
  return trial;
}

std::optional<PolicyTrial> smallest_budget(const Scenario& scenario, const std::string& policy,
                                           double target) {
  const auto granule = scenario.machine.granule_bytes;
  const auto at = [&](std::uint64_t granules) {
    auto s = scenario;
    s.plan.fast_bytes = granules * granule;
    return try_policy(s, policy);
  };
  const auto reaches = [&](const PolicyTrial& trial) {
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
