// Feeds decided gaps to the schedule, and emits its moves as a plan.
#include "plan/gaps/scheduled.h"

#include <algorithm>
#include <utility>

#include "plan/schedule/emit.h"
#include "plan/schedule/frame_pool.h"
#include "plan/schedule/issue.h"
#include "plan/schedule/schedule.h"
#include "plan/step/interval.h"
#include "sentinel/analysis.h"

namespace sentinel::plan {
namespace {

constexpr std::uint64_t kPage = 4096;

std::vector<GivenGap> given(const std::vector<Decision>& decisions) {
  std::vector<GivenGap> gaps;
  for (const Decision& d : decisions)
    if (d.remedy == Remedy::swap)
      gaps.push_back({.storage = d.storage, .use = d.use, .in = d.fetch, .tier = d.tier});
  std::ranges::sort(gaps, {}, [](const GivenGap& g) { return std::pair(g.storage, g.use); });
  return gaps;
}

void fill(Plan& plan, const Basis& basis, const ScheduleInput& input, ScheduledRules rules) {
  const Machine& machine = basis.machine;
  const bool in_place = machine.tiers[1].byte_addressable;
  // A step that is one interval has every promotion begin as early as it may.
  const Intervals intervals =
      rules.early ? Intervals(basis.profile, UINT32_MAX) : Intervals::each_op(basis.profile);
  const Schedule made = schedule(input, intervals);
  const IssueLists lists = issue_lists(input, made, intervals, in_place);
  const auto tiers = rules.tier != 0 ? std::vector<std::uint32_t>(basis.storages.size(), rules.tier)
                                     : choose_tiers(input, made, machine);
  emit(plan, {input, made, lists, tiers}, Fates(made.gaps.size(), Fate::move));
  const auto clean = clean_gaps(input, made, Writes(basis.profile), machine.exclusive);
  plan.predicted_step_us = predicted_step_us(input, made, lists, clean, tiers, tier_rates(machine));
  plan.peak_fast_bytes = std::ranges::max(made.held) + plan.frame_pool_bytes;
}

}  // namespace

bool granules_are_shared(const Machine& machine) { return machine.granule_bytes > kPage; }

Plan scheduled_plan(std::string_view policy, const Basis& basis, const PlanOptions& options,
                    const std::vector<Decision>& decisions, ScheduledRules rules) {
  const BudgetInput budget{basis.profile,  basis.machine, options,
                           basis.storages, basis.movable, basis.demand};
  Plan plan = bare_plan(policy, basis, options);
  fill_bounds(plan, budget);
  plan.peak_fast_bytes = std::ranges::max(basis.demand.all);
  plan.predicted_step_us = ideal_us(basis.profile);
  if (plan.peak_fast_bytes <= options.fast_bytes) return plan;
  refuse_too_small(plan, basis.machine);
  plan.frame_pool_bytes = frame_pool(budget);
  fill(plan, basis,
       {.profile = basis.profile,
        .storages = basis.storages,
        .movable = basis.movable,
        .footprint = basis.footprint,
        .demand = basis.demand,
        .limit = options.fast_bytes - plan.frame_pool_bytes,
        .overwritten_unfetched = !basis.machine.tiers[1].byte_addressable,
        .given = given(decisions)},
       rules);
  return plan;
}

}  // namespace sentinel::plan
