// Feeds decided gaps to the schedule, and emits its moves as a plan.
#include "plan/gaps/scheduled.h"

#include <algorithm>
#include <utility>

#include "plan/gaps/remade.h"
#include "plan/schedule/emit.h"
#include "plan/schedule/frame_pool.h"
#include "plan/schedule/issue.h"
#include "plan/schedule/schedule.h"
#include "plan/step/interval.h"
#include "plan/step/rates.h"
#include "sentinel/analysis.h"

namespace sentinel::plan {
namespace {

// How a policy's decisions to make tensors again are taken.
enum class Replays : std::uint8_t {
  moved,     // as swaps
  left,      // as none: the farthest next use decides
  made,      // as such
  made_kept  // as such; what a replay makes on its way stays where it was wanted as well
};

constexpr int kRounds = 3;  // of scheduling: what stays needs no replays, which makes room

std::vector<GivenGap> swaps(const std::vector<Decision>& decisions, bool all) {
  std::vector<GivenGap> gaps;
  for (const Decision& d : decisions)
    if (d.remedy == Remedy::swap || (all && d.remedy == Remedy::recompute))
      gaps.push_back({.storage = d.storage,
                      .use = d.use,
                      .in = d.remedy == Remedy::swap ? d.fetch : d.next,
                      .tier = d.remedy == Remedy::swap ? d.tier : 0});
  return gaps;
}

void sort(std::vector<GivenGap>& gaps) {
  std::ranges::sort(gaps, {}, [](const GivenGap& g) { return std::pair(g.storage, g.use); });
}

class Scheduling {
 public:
  Scheduling(const Basis& basis, std::uint64_t limit, ScheduledRules rules)
      : basis_(basis),
        limit_(limit),
        rules_(rules),
        // A step that is one interval has every promotion begin as early as it may.
        intervals_(rules.early ? Intervals(basis.profile, UINT32_MAX)
                               : Intervals::each_op(basis.profile)) {}

  void fill(Plan& plan, const std::vector<Decision>& decisions, Replays replays) const {
    std::vector<GivenGap> given = swaps(decisions, replays == Replays::moved);
    if (replays == Replays::moved || replays == Replays::left) {
      sort(given);
      const ScheduleInput input = in(basis_.storages, basis_.demand, std::move(given), {});
      emit_all(plan, input, schedule(input, intervals_), 0);
      return;
    }
    std::vector<LostGap> wanted;
    for (const Decision& d : decisions)
      if (d.remedy == Remedy::recompute) wanted.push_back({d.storage, d.use, d.next});
    fill_remade(plan, given, std::move(wanted), replays == Replays::made_kept);
  }

 private:
  // Until nothing that was to be made again turns out to stay. What stays makes chains shorter, so
  // after the last round the schedule has room for them.
  void fill_remade(Plan& plan, std::vector<GivenGap> given, std::vector<LostGap> wanted,
                   bool keep) const {
    for (int round = 1;; ++round) {
      Remade made = remade(basis_, limit_, wanted, keep);
      for (const LostGap& gap : made.refused)
        given.push_back({.storage = gap.storage, .use = gap.use, .in = gap.next});
      std::vector<GivenGap> all = given;
      for (std::size_t i = 0; i < made.gaps.size(); ++i)
        all.push_back(given_gap(made.gaps[i], made.cost[i]));
      sort(all);
      const Demand needs = demand(basis_, made);
      const ScheduleInput input = in(made.storages, needs, std::move(all), made.reads);
      Schedule result = schedule(input, intervals_);
      wanted.clear();
      for (const Gap& gap : result.gaps)
        if (gap.remade) wanted.push_back({gap.storage, gap.use, gap.next});
      const bool settled = wanted.size() == made.gaps.size();
      if (!settled && round < kRounds) continue;
      if (!settled) {
        Remade rest = remade(basis_, limit_, wanted, false);
        if (!rest.refused.empty()) return fill_moved(plan, std::move(given), wanted);
        made.replays = std::move(rest.replays);
      }
      plan.recomputations = std::move(made.replays);
      double us = 0;
      for (const Recompute& r : plan.recomputations) us += basis_.profile.ops[r.op.index()].us;
      emit_all(plan, input, result, us);
      give_replay_reasons(plan, basis_.profile, basis_.machine);
      return;
    }
  }

  void fill_moved(Plan& plan, std::vector<GivenGap> given,
                  const std::vector<LostGap>& wanted) const {
    for (const LostGap& gap : wanted)
      given.push_back({.storage = gap.storage, .use = gap.use, .in = gap.next});
    sort(given);
    const ScheduleInput input = in(basis_.storages, basis_.demand, std::move(given), {});
    emit_all(plan, input, schedule(input, intervals_), 0);
  }

  GivenGap given_gap(const LostGap& gap, double us) const {
    const auto bytes = static_cast<double>(basis_.storages[gap.storage].bytes);
    const Machine& m = basis_.machine;
    const double move = bytes / rate(m, 0, 1) + bytes / rate(m, 1, 0);
    return {.storage = gap.storage,
            .use = gap.use,
            .in = gap.next,
            .remade = true,
            .cost = us / std::max(move, 1e-9)};
  }

  ScheduleInput in(const std::vector<Storage>& storages, const Demand& needs,
                   std::vector<GivenGap> given, std::vector<ReplayRead> reads) const {
    return {.profile = basis_.profile,
            .storages = storages,
            .movable = basis_.movable,
            .footprint = basis_.footprint,
            .demand = needs,
            .limit = limit_,
            .overwritten_unfetched = !basis_.machine.tiers[1].byte_addressable,
            .given = std::move(given),
            .replay_reads = std::move(reads)};
  }

  void emit_all(Plan& plan, const ScheduleInput& input, const Schedule& made,
                double replays_us) const {
    const Machine& machine = basis_.machine;
    const bool in_place = machine.tiers[1].byte_addressable;
    const IssueLists lists = issue_lists(input, made, intervals_, in_place);
    const auto tiers = rules_.tier != 0
                           ? std::vector<std::uint32_t>(basis_.storages.size(), rules_.tier)
                           : choose_tiers(input, made, machine);
    emit(plan, {input, made, lists, tiers}, Fates(made.gaps.size(), Fate::move));
    const auto clean = clean_gaps(input, made, Writes(basis_.profile), machine.exclusive);
    plan.predicted_step_us =
        predicted_step_us(input, made, lists, clean, tiers, tier_rates(machine)) + replays_us;
    plan.peak_fast_bytes = std::ranges::max(made.held) + plan.frame_pool_bytes;
  }

  const Basis& basis_;
  std::uint64_t limit_;
  ScheduledRules rules_;
  Intervals intervals_;
};

}  // namespace

bool granules_are_shared(const Machine& machine) { return shares_granules(machine.granule_bytes); }

namespace {

class Scheduler {
 public:
  Scheduler(std::string_view policy, const Basis& basis, const PlanOptions& options,
            const ScheduledRules& rules)
      : basis_(basis),
        options_(options),
        rules_(rules),
        budget_{basis.profile, basis.machine, options, basis.storages, basis.movable, basis.demand},
        bare_(bare_plan(policy, basis, options)) {
    fill_bounds(bare_, budget_);
    bare_.peak_fast_bytes = std::ranges::max(basis.demand.all);
    bare_.predicted_step_us = ideal_us(basis.profile);
    if (!fits()) refuse_too_small(bare_, basis.machine);
  }

  bool fits() const { return bare_.peak_fast_bytes <= options_.fast_bytes; }
  const Plan& bare() const { return bare_; }
  std::uint64_t pool(bool deep) const {
    const std::uint64_t whole = frame_pool(budget_);
    return deep ? whole : std::min(whole, least_frame_pool(budget_));
  }
  Plan plan(const std::vector<Decision>& decisions, Replays replays, std::uint64_t pool) const {
    Plan plan = bare_;
    plan.frame_pool_bytes = pool;
    Scheduling(basis_, options_.fast_bytes - pool, rules_).fill(plan, decisions, replays);
    return plan;
  }

 private:
  const Basis& basis_;
  const PlanOptions& options_;
  ScheduledRules rules_;
  BudgetInput budget_;
  Plan bare_;
};

}  // namespace

Plan scheduled_plan(std::string_view policy, const Basis& basis, const PlanOptions& options,
                    const std::vector<Decision>& decisions, ScheduledRules rules) {
  const Scheduler scheduler(policy, basis, options, rules);
  if (scheduler.fits()) return scheduler.bare();
  const std::uint64_t pool = scheduler.pool(true), least = scheduler.pool(false);
  if (std::ranges::find(decisions, Remedy::recompute, &Decision::remedy) == decisions.end())
    return scheduler.plan(decisions, Replays::left, pool);
  std::vector<Plan> plans{scheduler.plan(decisions, Replays::moved, pool),
                          scheduler.plan(decisions, Replays::left, pool)};
  if (options.recompute)
    for (const std::uint64_t frames : {pool, least})
      for (const Replays way : {Replays::made, Replays::made_kept})
        plans.push_back(scheduler.plan(decisions, way, frames));
  return quickest(basis.profile, basis.machine, options, std::move(plans));
}

Plan replayed_plan(std::string_view policy, const Basis& basis, const PlanOptions& options,
                   const std::vector<Decision>& decisions, ReplayWay way) {
  const Scheduler scheduler(policy, basis, options, {});
  if (scheduler.fits()) return scheduler.bare();
  return scheduler.plan(decisions, way.keep ? Replays::made_kept : Replays::made,
                        scheduler.pool(way.deep));
}

Plan quickest(const Profile& profile, const Machine& machine, const PlanOptions& options,
              std::vector<Plan> plans) {
  if (options.judge)
    for (Plan& plan : plans) plan.predicted_step_us = options.judge(profile, machine, plan).step_us;
  return std::move(*std::ranges::min_element(plans, {}, &Plan::predicted_step_us));
}

Layout shared_layout(const Profile& profile, const Machine& machine, const PlanOptions& options) {
  if (!granules_are_shared(machine)) return {};
  return lay_out(profile, storages(profile), machine.granule_bytes, options.fast_bytes);
}

}  // namespace sentinel::plan
