// When what was moved comes back: as early as wished and as there is room, by a pace or without.
#include <algorithm>
#include <optional>

#include "plan/gaps/gap_planner.h"

namespace sentinel::plan {

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

}  // namespace sentinel::plan
