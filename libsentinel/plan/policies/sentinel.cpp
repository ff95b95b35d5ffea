// The Sentinel paper's policy (sections IV-B to IV-E) as a planned policy. Where it departs from
// the paper, and why, is written where it happens: layout.h (which long-lived tensors move at all),
// interval.h (bytes in Equation 2), schedule.h (only what has to leave leaves), issue.h (order).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <set>

#include "base/units.h"
#include "plan/issue.h"
#include "plan/layout.h"
#include "plan/policies/all.h"
#include "plan/rates.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"

namespace sentinel::plan {
namespace {

// What one instruction of each thread may touch: two operands and a result that each cross a
// granule boundary would be six; four covers what compilers emit.
constexpr std::uint64_t kGranulesPerThread = 4;

// How many interval lengths are scheduled and compared: ten, fewer where ops times tensors would
// make that take more than about a second. Not measured, so that a plan is the same every time.
constexpr double kTrialWork = 5e8;
constexpr std::string_view kIntervalTrial = "interval-trial";
constexpr std::array kFeatures{kIntervalTrial};

struct Attempt {  // one interval length, scheduled
  std::uint32_t layers = 1;
  Schedule schedule;
  IssueLists lists;
  std::vector<bool> clean;
  std::vector<std::uint32_t> tiers;  // per storage
  double step_us = 0;
};

class SentinelPlanner {
 public:
  SentinelPlanner(const Profile& profile, const Machine& machine, const PlanOptions& options)
      : profile_(profile),
        machine_(machine),
        options_(options),
        storages_(storages(profile)),
        layout_(lay_out(profile, storages_, machine.granule_bytes, options.fast_bytes)),
        movable_(find_movable()),
        footprint_(profile, layout_.placements, machine.granule_bytes),
        demand_(plan::demand(profile, storages_, movable_, footprint_)) {}

  Plan plan();

 private:
  std::vector<bool> find_movable() const;
  std::uint64_t frame_pool() const { return options_.pool_frames * machine_.granule_bytes; }
  std::uint64_t paper_bound() const;
  void fill_bounds(Plan&) const;
  void refuse_too_small(const Plan&) const;
  TierRates rates() const;
  ScheduleInput schedule_input() const;
  std::vector<std::uint32_t> candidates(const std::vector<IntervalPoint>& curve) const;
  Attempt attempt(std::uint32_t layers, const Writes&) const;
  Attempt best_attempt(Plan&) const;
  void emit(Plan&, const Attempt&) const;
  Move promotion(const Gap&, std::uint32_t tier) const;
  Move demotion(const Gap&, std::uint32_t tier) const;
  std::string op_name(std::uint32_t position) const;

  const Profile& profile_;
  const Machine& machine_;
  const PlanOptions& options_;
  std::vector<Storage> storages_;
  Layout layout_;
  std::vector<bool> movable_;
  Footprint footprint_;
  Demand demand_;
};

std::vector<bool> SentinelPlanner::find_movable() const {
  std::vector<bool> pinned(profile_.tensors.size(), false);
  for (const Placement& p : layout_.placements)
    pinned[p.tensor.index()] = layout_.groups[p.group.index()].pool != Pool::long_lived;
  std::vector<bool> movable;
  for (const Storage& s : storages_) movable.push_back(!pinned[s.tensor.index()]);
  return movable;
}

std::uint64_t largest(const std::vector<std::uint64_t>& v) {
  return v.empty() ? 0 : *std::max_element(v.begin(), v.end());
}

// Section IV-E: below the peak of the short-lived tensors and the largest long-lived one, the
// paper expects a loss of more than a fifth.
std::uint64_t SentinelPlanner::paper_bound() const {
  std::uint64_t tensor = 0;
  for (std::size_t i = 0; i < storages_.size(); ++i)
    if (movable_[i]) tensor = std::max(tensor, storages_[i].bytes);
  return largest(demand_.reserved) + round_up(tensor, machine_.granule_bytes) + frame_pool();
}

void SentinelPlanner::fill_bounds(Plan& plan) const {
  const std::uint64_t threads =
      std::max(options_.threads != 0 ? options_.threads : profile_.meta.machine.cores, 1u);
  const std::uint64_t everything = largest(demand_.all);
  const std::uint64_t by_faults =
      frame_pool() + threads * kGranulesPerThread * machine_.granule_bytes;
  plan.smallest_budget = std::min(by_faults, everything);
  plan.smallest_unstreamed_budget =
      std::max(plan.smallest_budget, std::min(largest(demand_.must) + frame_pool(), everything));
  plan.paper_bound = paper_bound();
}

void SentinelPlanner::refuse_too_small(const Plan& plan) const {
  if (plan.fast_bytes < plan.smallest_budget)
    throw Error(fmt::format(
        "{} of fast memory are too few: the smallest budget that works is {}; from {} on no "
        "operation has to be streamed; the bound of the Sentinel paper (section IV-E), short-lived "
        "peak and largest long-lived tensor, is {}",
        print_bytes(plan.fast_bytes), print_bytes(plan.smallest_budget),
        print_bytes(plan.smallest_unstreamed_budget), print_bytes(plan.paper_bound)));
  if (machine_.tiers.size() < 2)
    throw Error(fmt::format("machine {} has no slower tier to plan for", machine_.name));
}

TierRates SentinelPlanner::rates() const {
  TierRates rates{{0}, {0}};
  for (std::uint32_t t = 1; t < machine_.tiers.size(); ++t) {
    rates.in.push_back(rate(machine_, t, 0));
    rates.out.push_back(rate(machine_, 0, t));
  }
  return rates;
}

ScheduleInput SentinelPlanner::schedule_input() const {
  return {profile_, storages_, movable_, footprint_, demand_, options_.fast_bytes - frame_pool()};
}

// The paper's choice by Equations 1 and 2 first. The equations assume that everything which a
// neighbouring interval does not need moves; when only some of it does, another length may be
// better, so some more are scheduled and compared.
std::vector<std::uint32_t> SentinelPlanner::candidates(
    const std::vector<IntervalPoint>& curve) const {
  std::vector<std::uint32_t> lengths{best_interval(curve)};
  const auto& without = options_.without;
  if (std::find(without.begin(), without.end(), kIntervalTrial) != without.end()) return lengths;
  const double size =
      static_cast<double>(profile_.ops.size()) * static_cast<double>(storages_.size());
  const auto trials = static_cast<std::size_t>(std::clamp(kTrialWork / size, 1.0, 10.0));
  const double longest = curve.back().layers;
  for (std::size_t i = 0; i + 1 < trials; ++i) {  // evenly spread on a logarithmic scale
    const double share =
        trials > 2 ? static_cast<double>(i + 1) / static_cast<double>(trials) : 0.5;
    const auto m = static_cast<std::uint32_t>(std::lround(std::pow(longest, share)));
    if (std::find(lengths.begin(), lengths.end(), m) == lengths.end()) lengths.push_back(m);
  }
  return lengths;
}

Attempt SentinelPlanner::attempt(std::uint32_t layers, const Writes& writes) const {
  const Intervals intervals(profile_, layers);
  const ScheduleInput input = schedule_input();
  Attempt a{.layers = layers, .schedule = schedule(input, intervals)};
  a.lists = issue_lists(input, a.schedule, intervals, machine_.tiers[1].byte_addressable);
  a.clean = clean_gaps(input, a.schedule, writes);
  a.tiers = choose_tiers(input, a.schedule, machine_);
  a.step_us = predicted_step_us(input, a.schedule, a.lists, a.clean, a.tiers, rates());
  return a;
}

Attempt SentinelPlanner::best_attempt(Plan& plan) const {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed_s = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  plan.curve = interval_curve({profile_, storages_, movable_, demand_.reserved,
                               options_.fast_bytes - frame_pool(), rates().in[1]},
                              options_.max_interval_layers);
  const Writes writes(profile_);
  Attempt best;
  for (std::uint32_t layers : candidates(plan.curve)) {
    if (plan.effort > 0 && elapsed_s() > options_.time_limit_s) break;
    Attempt a = attempt(layers, writes);
    // One per cent in favour of the paper's choice: predictions are not better than that.
    if (plan.effort++ == 0 || a.step_us < 0.99 * best.step_us) best = std::move(a);
  }
  return best;
}

std::string SentinelPlanner::op_name(std::uint32_t position) const {
  const std::uint32_t op = position % static_cast<std::uint32_t>(profile_.ops.size());
  return fmt::format("op {} ({})", op, profile_.ops[op].name);
}

Move SentinelPlanner::promotion(const Gap& gap, std::uint32_t tier) const {
  const std::uint32_t ops = static_cast<std::uint32_t>(profile_.ops.size());
  const char* why = gap.in == gap.next    ? "; no room any earlier"
                    : gap.in > gap.target ? "; put off until there was room"
                                          : "; an interval ahead";
  return {.tensor = storages_[gap.storage].at(gap.in, ops),
          .direction = Direction::promote,
          .trigger = OpId(gap.in % ops),
          .deadline = OpId(gap.next % ops),
          .tier = tier,
          .reason = fmt::format("needed by {}{}", op_name(gap.next), why)};
}

Move SentinelPlanner::demotion(const Gap& gap, std::uint32_t tier) const {
  const std::uint32_t ops = static_cast<std::uint32_t>(profile_.ops.size());
  const std::uint32_t held_until = gap.out > gap.use ? gap.out - 1 : gap.use;
  std::string reason = gap.forced   ? "its op is streamed, which leaves nothing in place"
                       : gap.needed ? fmt::format("not needed before {}", op_name(gap.next))
                                    : std::string("not needed again");
  if (gap.out == gap.use + 1 && !gap.forced) reason += "; the next op needs its space at once";
  return {.tensor = storages_[gap.storage].at(gap.use, ops),
          .direction = Direction::demote,
          .trigger = OpId(gap.use % ops),
          .deadline = OpId(held_until % ops),
          .tier = tier,
          .reason = std::move(reason)};
}

void SentinelPlanner::emit(Plan& plan, const Attempt& best) const {
  const auto& tier = best.tiers;
  for (std::size_t k = 0; k < profile_.ops.size(); ++k) {
    for (std::uint32_t g : best.lists.demote[k]) {
      const Gap& gap = best.schedule.gaps[g];
      plan.moves.push_back(demotion(gap, tier[gap.storage]));
    }
    for (std::uint32_t g : best.lists.promote[k]) {
      const Gap& gap = best.schedule.gaps[g];
      plan.moves.push_back(promotion(gap, tier[gap.storage]));
    }
  }
  for (std::uint32_t k : best.schedule.streamed) plan.streamed_ops.push_back(OpId(k));
  plan.interval_layers = best.layers;
  plan.frame_pool_bytes = frame_pool();
  plan.peak_fast_bytes = largest(best.schedule.held) + frame_pool();
  plan.predicted_step_us = best.step_us;
}

Plan SentinelPlanner::plan() {
  Plan plan{.policy = "sentinel",
            .machine = machine_.name,
            .model = profile_.meta.model,
            .profile_signature = profile_.meta.signature,
            .fast_bytes = options_.fast_bytes,
            .granule_bytes = machine_.granule_bytes,
            .region_bytes = layout_.region_bytes,
            .reserved_bytes = layout_.reserved_bytes,
            .placements = layout_.placements,
            .groups = layout_.groups};
  fill_bounds(plan);
  plan.peak_fast_bytes = largest(demand_.all);
  plan.predicted_step_us = ideal_us(profile_);
  if (plan.peak_fast_bytes <= options_.fast_bytes) return plan;  // no moves, so no frames for them
  refuse_too_small(plan);
  emit(plan, best_attempt(plan));
  return plan;
}

class SentinelPolicy final : public PlannedPolicy {
 public:
  std::string_view name() const override { return "sentinel"; }
  std::span<const std::string_view> features() const override { return kFeatures; }

  Plan plan(const Profile& profile, const Machine& machine, const PlanOptions& options) override {
    check_features(*this, options);
    if (profile.ops.empty())
      throw Error("the profile holds no operation, so there is nothing to plan");
    return SentinelPlanner(profile, machine, options).plan();
  }
};

}  // namespace

std::unique_ptr<Policy> make_sentinel() { return std::make_unique<SentinelPolicy>(); }

}  // namespace sentinel::plan
