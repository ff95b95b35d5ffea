// Turns decisions about gaps into moves, replays and births of a plan.
#include "plan/gaps/gap_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "base/units.h"
#include "plan/schedule/schedule.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"

namespace sentinel::plan {

void GapPlanner::refuse_large_ops() const {
  const auto largest = std::ranges::max_element(demand_.must);
  if (largest == demand_.must.end() || *largest <= options_.fast_bytes) return;
  throw Error(fmt::format("{} needs {} of fast memory at once, {} are allowed",
                          op_name(static_cast<std::uint32_t>(largest - demand_.must.begin())),
                          print_bytes(*largest), print_bytes(options_.fast_bytes)));
}

void GapPlanner::adopt(const std::vector<Decision>& decisions) {
  for (const Decision& d : decisions) {
    if (d.remedy == Remedy::keep || d.next < d.use + 2) continue;
    const Storage& s = storages_[d.storage];
    Eviction e{.decision = d, .in = d.next, .back_by = d.next};
    const auto alone = [&](std::span<const UnitId> units) {
      std::uint64_t sum = 0;
      for (UnitId u : units)
        if (footprint_.members(u).size() == 1) sum += footprint_.bytes(u);
      return sum;
    };
    e.bytes = alone(footprint_.units(s.tensor));
    e.whole = alone(footprint_.whole(s.tensor));
    if (e.bytes == 0) continue;
    const bool again = std::ranges::binary_search(s.uses, d.next) ||
                       (d.next >= ops_ && std::ranges::binary_search(s.uses, d.next - ops_));
    e.needed = again && reads(profile_, s, d.next);
    // Nobody reads it again: the space alone is given up.
    e.recomputed = !e.needed;
    if (e.recomputed && e.whole == 0) continue;
    evictions_.push_back(e);
  }
  std::ranges::sort(evictions_, {}, [](const Eviction& e) {
    return std::pair(e.decision.storage, e.decision.use);
  });
  first_eviction_.assign(storages_.size() + 1, 0);
  for (const Eviction& e : evictions_) ++first_eviction_[e.decision.storage + 1];
  std::partial_sum(first_eviction_.begin(), first_eviction_.end(), first_eviction_.begin());
  for (Eviction& e : evictions_) {
    e.recomputed |= options_.recompute && e.decision.remedy == Remedy::recompute &&
                    e.decision.next < ops_ && may_be_lost(e);  // until shown to be illegal
    e.out = e.decision.use + (e.recomputed ? 1 : 2);
    level_.add(e.out, e.in, -signed_bytes(e));
  }
  choose_replays();
}

// What outlives the step no replay writes. On frames as a training run has it: what the step makes
// and frees.
bool GapPlanner::may_be_lost(const Eviction& e) const {
  const Storage& storage = storages_[e.decision.storage];
  const Tensor& tensor = profile_.tensors[storage.tensor.index()];
  return !storage.persistent && e.whole > 0 && (!frames_ || (tensor.alloc_op && tensor.free_op));
}

// Back in fast memory from `position` on instead of from e.in.
void GapPlanner::bring_back(Eviction& e, std::uint32_t position) {
  const std::uint32_t from = std::clamp(position, std::min(e.out, e.in), e.in);
  level_.add(from, e.in, signed_bytes(e));
  e.in = from;
}

// Swapped after all: holds its space while it is written.
void GapPlanner::swap_instead(Eviction& e) {
  level_.add(e.out, e.in, signed_bytes(e));
  e.recomputed = false;
  e.out = std::min(e.out + 1, e.in);
  level_.add(e.out, e.in, -signed_bytes(e));
}

// The eviction during whose absence op `op` runs, if the tensor is away then. An op that only
// writes the tensor ends an absence, but what runs before the op does not find it.
GapPlanner::Eviction* GapPlanner::covering(TensorId t, std::uint32_t op) {
  const std::uint32_t storage = by_tensor_[t.index()];
  if (storage == UINT32_MAX) return nullptr;
  for (std::uint32_t i = first_eviction_[storage]; i < first_eviction_[storage + 1]; ++i)
    for (const std::uint32_t position : {op, op + ops_}) {
      Eviction& e = evictions_[i];
      const std::uint32_t end = e.decision.next + (e.needed ? 0 : 1);
      if (position > e.decision.use && position < end) return &e;
    }
  return nullptr;
}

// Where an op has no room for what is still being written, it waits for the write instead. The
// largest first: the fewest waits.
void GapPlanner::free_at_once() {
  std::vector<Eviction*> order;
  for (Eviction& e : evictions_)
    if (!e.recomputed && e.out == e.decision.use + 2 && e.out <= e.in) order.push_back(&e);
  std::ranges::stable_sort(order, std::greater{}, [](const Eviction* e) { return e->bytes; });
  for (Eviction* e : order) {
    const std::uint32_t next_op = e->decision.use + 1;
    if (level_.at(next_op) <= limit()) continue;
    e->out = next_op;
    level_.add(next_op, next_op + 1, -signed_bytes(*e));
  }
}

void GapPlanner::require_fit() const {
  const auto over = level_.last_above(0, ops_, limit());
  if (!over) return;
  throw Error(fmt::format("{}: {} holds {} of fast memory, {} more than are allowed", policy_,
                          op_name(*over), print_bytes(static_cast<std::uint64_t>(level_.at(*over))),
                          print_bytes(static_cast<std::uint64_t>(level_.at(*over) - limit()))));
}

void GapPlanner::emit(Plan& plan) const {
  for (const Eviction& e : evictions_) {
    const Storage& s = storages_[e.decision.storage];
    const std::uint32_t held_until = std::max(e.out, e.decision.use + 1) - 1;
    const std::uint32_t ahead = e.decision.ahead && !e.recomputed && dirty(e) ? lead(e) : 0;
    if (ahead > 0)
      plan.moves.push_back({.tensor = s.at(std::max(e.decision.use, ahead) - ahead, ops_),
                            .direction = Direction::copy,
                            .trigger = OpId((e.decision.use + ops_ - ahead) % ops_),
                            .deadline = OpId(e.decision.use % ops_),
                            .tier = e.decision.tier,
                            .reason = fmt::format("leaves after {}", op_name(e.decision.use))});
    plan.moves.push_back(
        {.tensor = s.at(e.decision.use, ops_),
         .direction = e.recomputed ? Direction::discard : Direction::demote,
         .trigger = OpId(e.decision.use % ops_),
         .deadline = OpId(held_until % ops_),
         .tier = e.decision.tier,
         .delay_us = e.decision.out_delay_us,
         .reason = e.needed ? fmt::format("not needed before {}", op_name(e.decision.next))
                            : std::string("nothing reads what it holds again")});
    if (e.recomputed) continue;
    plan.moves.push_back({.tensor = s.at(e.decision.next, ops_),
                          .direction = Direction::promote,
                          .trigger = OpId(e.in % ops_),
                          .deadline = OpId(e.back_by % ops_),
                          .tier = e.decision.tier,
                          .delay_us = e.decision.in_delay_us,
                          .reason = fmt::format("needed by {}", op_name(e.decision.next))});
  }
  // Promotions of one op: who is needed first goes first.
  const auto key = [&](const Move& m) {
    const bool promotion = m.direction == Direction::promote;
    const std::uint32_t wait = (m.deadline.value + ops_ - m.trigger.value) % ops_;
    return std::tuple(m.trigger, promotion, promotion ? wait : 0);
  };
  std::ranges::stable_sort(plan.moves, {}, key);
  for (const auto& [before, group] : replays_)
    plan.recomputations.insert(plan.recomputations.end(), group.begin(), group.end());
}

DecidedPlan GapPlanner::plan(const std::vector<Decision>& decisions, const Pace* pace) {
  DecidedPlan result{.plan = bare_plan(policy_, basis_, options_)};
  Plan& plan = result.plan;
  const auto largest = [](const std::vector<std::uint64_t>& v) {
    return v.empty() ? 0 : *std::ranges::max_element(v);
  };
  plan.smallest_budget = plan.smallest_unstreamed_budget = largest(demand_.must);
  const bool scarce = largest(demand_.all) > options_.fast_bytes;
  if (scarce) {
    refuse_large_ops();
    adopt(decisions);
    free_at_once();
    require_fit();
    fetch_early(pace);
    emit(plan);
  }
  for (std::uint32_t k = 0; k < ops_; ++k)
    result.held.push_back(static_cast<std::uint64_t>(level_.at(k)));
  plan.peak_fast_bytes = largest(result.held);
  plan.predicted_step_us = ideal_us(profile_) + recompute_us_;
  result.recompute_us = recompute_us_;
  return result;
}

DecidedPlan decided_plan(std::string_view policy, const Basis& basis, const PlanOptions& options,
                         const std::vector<Decision>& decisions, const Pace* pace) {
  if (basis.profile.ops.empty())
    throw Error("the profile holds no operation, so there is nothing to plan");
  return GapPlanner(policy, basis, options).plan(decisions, pace);
}

DecidedPlan decided_plan(std::string_view policy, const Profile& profile, const Machine& machine,
                         const PlanOptions& options, const std::vector<Decision>& decisions) {
  return decided_plan(policy, Basis(profile, machine), options, decisions);
}

}  // namespace sentinel::plan
