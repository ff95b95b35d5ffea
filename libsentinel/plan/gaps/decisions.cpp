// Turns decisions about gaps into moves, replays and births of a plan.
#include "plan/gaps/decisions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/units.h"
#include "plan/schedule/schedule.h"
#include "plan/step/footprint.h"
#include "plan/step/level.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"

namespace sentinel::plan {
namespace {

// A chain of replays that is longer than this is not worth its search.
constexpr std::size_t kLongestChain = 512;

class GapPlanner {
 public:
  GapPlanner(std::string_view policy, const Basis& basis, const PlanOptions& options)
      : policy_(policy),
        basis_(basis),
        profile_(basis.profile),
        machine_(basis.machine),
        options_(options),
        ops_(static_cast<std::uint32_t>(basis.profile.ops.size())),
        frames_(shares_granules(basis.machine.granule_bytes)),
        storages_(basis.storages),
        footprint_(basis.footprint),
        demand_(basis.demand),
        replay_(basis.replay),
        by_tensor_(basis.storage_of),
        level_(basis.demand.all) {}

  DecidedPlan plan(const std::vector<Decision>& decisions, const Pace* pace);

 private:
  struct Eviction {
    Decision decision;
    std::uint64_t bytes = 0;        // that leaving frees
    std::uint64_t whole = 0;        // of its memory, what a discard frees (plan/step/footprint.h)
    std::uint32_t out = 0, in = 0;  // absent at [out, in)
    bool needed = true;             // its next use reads it
    bool recomputed = false;
    std::uint32_t written = 0;  // by the pace: the first position at which its space is free
    std::uint32_t lies = 1;     // by the pace: the tier of its copy
    std::uint32_t back_by = 0;  // a replay reads it before its next use does
  };

  std::int64_t limit() const { return static_cast<std::int64_t>(options_.fast_bytes); }
  bool late() const { return seconds_since(begin_) > options_.time_limit_s; }
  void refuse_large_ops() const;
  void adopt(const std::vector<Decision>&);
  void choose_replays();
  bool replayed(Eviction&);
  bool may_be_lost(const Eviction&) const;
  bool ordered(const std::vector<Recompute>&) const;
  bool take_replays(OpId before, std::vector<Recompute> group, std::size_t old);
  Eviction* worth_keeping(const Recompute&, TensorId);
  std::uint32_t position_in(const Eviction&, std::uint32_t op) const;
  void bring_back(Eviction&, std::uint32_t position);
  void swap_instead(Eviction&);
  static std::int64_t signed_bytes(const Eviction& e) {
    return static_cast<std::int64_t>(e.recomputed ? e.whole : e.bytes);
  }
  Eviction* covering(TensorId, std::uint32_t op);
  void free_at_once();
  void require_fit() const;
  void fetch_early(const Pace*);
  Level slowed(const Pace&);
  const Eviction* evicted_before(const Eviction&) const;
  bool dirty(const Eviction&) const;
  std::uint32_t lead(const Eviction&) const;
  void emit(Plan&) const;
  std::string op_name(std::uint32_t k) const {
    return fmt::format("op {} ({})", k % ops_, profile_.ops[k % ops_].name);
  }

  std::string_view policy_;
  const Basis& basis_;
  const Profile& profile_;
  const Machine& machine_;
  const PlanOptions& options_;
  std::uint32_t ops_;
  bool frames_;  // a training run's, with its rules for replays (plan/step/replay.cpp)
  const std::vector<Storage>& storages_;
  const Footprint& footprint_;
  const Demand& demand_;
  const Replay& replay_;
  const std::vector<std::uint32_t>& by_tensor_;
  Level level_;
  std::vector<Eviction> evictions_;                 // by storage and use
  std::vector<std::uint32_t> first_eviction_;       // per storage, and their number
  std::map<OpId, std::vector<Recompute>> replays_;  // by the op they precede
  double recompute_us_ = 0;
  Clock::time_point begin_ = Clock::now();
};

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

// On frames as a training run has it: what the step makes and frees.
bool GapPlanner::may_be_lost(const Eviction& e) const {
  const Tensor& tensor = profile_.tensors[storages_[e.decision.storage].tensor.index()];
  return e.whole > 0 && (!frames_ || (tensor.alloc_op && tensor.free_op));
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

// The eviction during whose absence op `op` runs, if the tensor is away then.
GapPlanner::Eviction* GapPlanner::covering(TensorId t, std::uint32_t op) {
  const std::uint32_t storage = by_tensor_[t.index()];
  if (storage == UINT32_MAX) return nullptr;
  for (std::uint32_t i = first_eviction_[storage]; i < first_eviction_[storage + 1]; ++i)
    for (const std::uint32_t position : {op, op + ops_})
      if (position > evictions_[i].decision.use && position < evictions_[i].decision.next)
        return &evictions_[i];
  return nullptr;
}

// In the order in which their contents are needed again, so that a replay sees what was remade
// before it. Past the time limit the rest is swapped.
void GapPlanner::choose_replays() {
  std::vector<Eviction*> order;
  for (Eviction& e : evictions_)
    if (e.needed && e.recomputed) order.push_back(&e);
  std::ranges::stable_sort(order, {}, [](const Eviction* e) { return e->decision.next; });
  // What one op makes is remade at once: where there is no room for a replay, its other outputs
  // need not try.
  std::set<std::pair<OpId, std::uint32_t>> refused;
  for (Eviction* e : order) {
    if (e->in != e->decision.next) continue;
    const std::uint32_t next = e->decision.next;
    const auto maker = replay_.maker(storages_[e->decision.storage].at(next, ops_), OpId(next));
    const bool hopeless = !maker || refused.contains({*maker, next}) || late();
    if (!hopeless && replayed(*e)) continue;
    if (maker) refused.emplace(*maker, next);
    swap_instead(*e);
  }
}

bool GapPlanner::replayed(Eviction& e) {
  const OpId before(e.decision.next);
  const auto found = replays_.find(before);
  std::vector<Recompute> group = found == replays_.end() ? std::vector<Recompute>{} : found->second;
  const auto remade = [&](TensorId t) {
    return std::ranges::any_of(group, [&](const Recompute& r) {
      return std::ranges::binary_search(profile_.ops[r.op.index()].out, t);
    });
  };
  const auto available = [&](TensorId t) {
    if (!replay_.alive(t, before)) return remade(t);
    const Eviction* away = covering(t, before.value);
    return away == nullptr || !away->recomputed || away->in <= before.value || remade(t);
  };
  const TensorId wanted = storages_[e.decision.storage].at(e.decision.next, ops_);
  const auto chain = replay_chain(profile_, replay_, wanted, before, available,
                                  frames_ ? kMostRecipes : kLongestChain);
  if (chain.empty()) return false;
  const std::size_t old = group.size();
  for (const Recompute& r : chain) {
    auto at = std::ranges::find(group, r.op, &Recompute::op);
    if (at == group.end()) at = group.insert(group.end(), {.op = r.op, .before = before});
    at->keep.insert(at->keep.end(), r.keep.begin(), r.keep.end());
    std::ranges::sort(at->keep);
  }
  if (frames_ && !ordered(group)) return false;
  return take_replays(before, std::move(group), old);
}

// New replays go before old ones that they were run before in the step.
bool GapPlanner::ordered(const std::vector<Recompute>& group) const {
  std::vector<Recompute> sorted = group;
  std::ranges::sort(sorted, {}, &Recompute::op);
  return sorted.size() <= kMostRecipes && finds_its_versions(profile_, replay_, sorted);
}

// Accepts the replays before one op, of which those from `old` on are new, if there is room for
// what they make and for what they read.
bool GapPlanner::take_replays(OpId before, std::vector<Recompute> group, std::size_t old) {
  const auto held_by = [&](const std::vector<Recompute>& replays) {
    return static_cast<std::int64_t>(replay_bytes(profile_, replays, machine_.granule_bytes));
  };
  std::vector<std::pair<Eviction*, std::uint32_t>> moved;  // and where it was
  for (std::size_t i = old; i < group.size(); ++i) {
    const Op& op = profile_.ops[group[i].op.index()];
    for (TensorId t : op.out)
      if (Eviction* away = worth_keeping(group[i], t)) {
        moved.emplace_back(away, away->in);
        bring_back(*away, before.value);
        group[i].keep.insert(std::ranges::upper_bound(group[i].keep, t), t);
      }
    for (TensorId t : op.in)
      if (Eviction* away = covering(t, before.value); away && !away->recomputed) {
        moved.emplace_back(away, away->in);
        bring_back(*away, position_in(*away, before.value));
      }
  }
  const auto found = replays_.find(before);
  const std::int64_t more = held_by(group) - (found == replays_.end() ? 0 : held_by(found->second));
  level_.add(before.value, before.value + 1, more);
  const bool fits =
      level_.at(before.value) <= limit() && std::ranges::all_of(moved, [&](const auto& m) {
        return level_.most(m.first->in, m.second) <= limit();
      });
  if (!fits) {
    level_.add(before.value, before.value + 1, -more);
    for (const auto& [away, in] : std::views::reverse(moved)) {
      level_.add(away->in, in, -signed_bytes(*away));
      away->in = in;
    }
    return false;
  }
  for (const auto& [away, in] : moved) away->back_by = std::min(away->back_by, away->in);
  for (std::size_t i = old; i < group.size(); ++i)
    recompute_us_ += profile_.ops[group[i].op.index()].us;
  replays_[before] = std::move(group);
  return true;
}

std::uint32_t GapPlanner::position_in(const Eviction& e, std::uint32_t op) const {
  return op > e.decision.use ? op : op + ops_;
}

// What a replay makes on its way and a later op reads stays, where there is room until then: it
// does not have to be made once more.
GapPlanner::Eviction* GapPlanner::worth_keeping(const Recompute& r, TensorId t) {
  if (std::ranges::binary_search(r.keep, t)) return nullptr;
  Eviction* away = covering(t, r.before.value);
  if (!away || !away->needed || !away->recomputed || away->in != away->decision.next)
    return nullptr;
  if (replay_.version(t, r.before) != replay_.version(t, r.op) + 1) return nullptr;
  const bool room = level_.most(r.before.value, away->in) + signed_bytes(*away) <= limit() ||
                    away->in == r.before.value;
  return room ? away : nullptr;
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

// The eviction of its storage before it, which may be the last one of the step before (itself, if
// it is the only one). Null: the step makes the storage, and this is its first.
const GapPlanner::Eviction* GapPlanner::evicted_before(const Eviction& e) const {
  const auto storage = e.decision.storage;
  if (&e != &evictions_[first_eviction_[storage]]) return &e - 1;
  return storages_[storage].persistent ? &evictions_[first_eviction_[storage + 1] - 1] : nullptr;
}

// Whether its contents differ from what the eviction before it left in a slower tier.
bool GapPlanner::dirty(const Eviction& e) const {
  const Storage& s = storages_[e.decision.storage];
  const Eviction* earlier = evicted_before(e);
  if (machine_.exclusive || earlier == nullptr || earlier->recomputed) return true;
  const auto written = [&](auto from, auto to) {
    return std::any_of(from, to, [&](std::uint32_t use) { return writes(profile_, s, use); });
  };
  const auto after = [&](const Eviction& of) {
    return std::ranges::upper_bound(s.uses, of.decision.use);
  };
  if (earlier < &e) return written(after(*earlier), after(e));
  return written(after(*earlier), s.uses.end()) || written(s.uses.begin(), after(e));
}

// For how many ops before it leaves nothing writes it: so long ago a copy could have begun.
std::uint32_t GapPlanner::lead(const Eviction& e) const {
  const Storage& s = storages_[e.decision.storage];
  const std::uint32_t use = e.decision.use;
  const auto after = std::ranges::upper_bound(s.uses, use);
  const auto writing = [&](std::uint32_t position) { return writes(profile_, s, position); };
  std::uint32_t lead = use - s.first;
  const auto last = std::find_if(std::reverse_iterator(after), s.uses.rend(), writing);
  if (last != s.uses.rend()) {
    lead = use - *last;
  } else if (s.persistent) {
    const auto before = std::find_if(s.uses.rbegin(), std::reverse_iterator(after), writing);
    if (before != std::reverse_iterator(after)) lead = use + ops_ - *before;
  }
  // What was remade is there from then on, and on exclusive tiers what came back.
  const Eviction* earlier = evicted_before(e);
  if (earlier != nullptr && (machine_.exclusive || earlier->recomputed))
    lead = std::min(lead, use + (earlier < &e ? 0 : ops_) - earlier->decision.next);
  return lead;
}

// What is held when writes take the time they take.
Level GapPlanner::slowed(const Pace& pace) {
  std::vector<Eviction*> order;
  for (Eviction& e : evictions_) {
    e.written = e.out;
    e.lies = e.decision.tier;
    if (e.recomputed) continue;
    if (dirty(e))
      order.push_back(&e);
    else if (&e != &evictions_[first_eviction_[e.decision.storage]])
      e.lies = (&e - 1)->lies;
  }
  std::vector<Pace::Write> writes;
  for (const Eviction* e : order)
    writes.push_back(
        {e->decision.use, e->decision.ahead ? lead(*e) : 0, e->decision.tier, e->bytes});
  const auto written = pace.written(writes);
  Level level = level_;
  for (std::size_t i = 0; i < order.size(); ++i) {
    Eviction& e = *order[i];
    e.written = std::clamp(written[i], std::min(e.out, e.in), e.in);
    level.add(std::min(e.out, e.in), e.written, signed_bytes(e));
  }
  return level;
}

// Each promotion as early as was wished and as there is room from then on; who is needed first
// chooses first. By the pace, what is still being written takes room too, and only what could not
// be there in time is fetched without.
void GapPlanner::fetch_early(const Pace* pace) {
  std::optional<Level> slow;
  if (pace != nullptr) slow = slowed(*pace);
  std::vector<Eviction*> order;
  for (Eviction& e : evictions_)
    if (!e.recomputed) order.push_back(&e);
  std::ranges::stable_sort(order, {}, [](const Eviction* e) { return e->back_by; });
  for (Eviction* e : order) {
    std::uint32_t from = std::clamp(e->decision.fetch, std::min(e->out, e->in), e->in);
    if (const auto full = level_.last_above(from, e->in, limit() - signed_bytes(*e)))
      from = *full + 1;
    if (slow) {
      const std::uint32_t at_once = from;
      from = std::max(from, e->written);
      if (const auto full = slow->last_above(from, e->in, limit() - signed_bytes(*e)))
        from = *full + 1;
      from = std::min(from, pace->in_time(at_once, e->in, e->lies, e->bytes));
      slow->add(std::max(from, e->written), e->in, signed_bytes(*e));
    }
    bring_back(*e, from);
  }
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
  for (const auto& [before, group] : replays_) {
    plan.recomputations.insert(plan.recomputations.end(), group.begin(), group.end());
    if (frames_)
      std::ranges::sort(std::span(plan.recomputations).last(group.size()), {}, &Recompute::op);
  }
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

}  // namespace

Plan bare_plan(std::string_view policy, const Basis& basis, const PlanOptions& options) {
  return {.policy = std::string(policy),
          .machine = basis.machine.name,
          .model = basis.profile.meta.model,
          .profile_signature = basis.profile.meta.signature,
          .fast_bytes = options.fast_bytes,
          .granule_bytes = basis.machine.granule_bytes,
          .region_bytes = basis.layout.region_bytes,
          .reserved_bytes = basis.layout.reserved_bytes,
          .placements = basis.layout.placements,
          .groups = basis.layout.groups};
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
