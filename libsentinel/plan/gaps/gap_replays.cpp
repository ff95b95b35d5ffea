// Which of the gaps that are to be made again are, and by which replays.
#include <algorithm>
#include <ranges>
#include <set>
#include <utility>

#include "plan/gaps/gap_planner.h"

namespace sentinel::plan {
namespace {

// A chain of replays that is longer than this is not worth its search.
constexpr std::size_t kLongestChain = 512;

}  // namespace

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
    return !replay_.persistent(t) && std::ranges::any_of(group, [&](const Recompute& r) {
      return std::ranges::binary_search(profile_.ops[r.op.index()].out, t);
    });
  };
  const auto available = [&](TensorId t) {
    if (!replay_.alive(t, before)) return remade(t);
    const Eviction* away = covering(t, before.value);
    return away == nullptr || !away->recomputed || (away->needed && away->in <= before.value) ||
           remade(t);
  };
  const TensorId wanted = storages_[e.decision.storage].at(e.decision.next, ops_);
  const auto chain = replay_chain(profile_, replay_, wanted, before, available,
                                  frames_ ? kMostRecipes : kLongestChain);
  if (chain.empty()) return false;
  std::set<OpId> added;
  for (const Recompute& r : chain) {
    auto at = std::ranges::lower_bound(group, r.op, {}, &Recompute::op);
    if (at == group.end() || at->op != r.op) {
      at = group.insert(at, {.op = r.op, .before = before});
      added.insert(r.op);
    }
    at->keep.insert(at->keep.end(), r.keep.begin(), r.keep.end());
    std::ranges::sort(at->keep);
  }
  if (frames_ && group.size() > kMostRecipes) return false;
  if (!finds_its_versions(profile_, replay_, group)) return false;
  return take_replays(before, std::move(group), added);
}

// Accepts the replays before one op, in the order of the step, some of which are new, if there is
// room for what they make and for what they read.
bool GapPlanner::take_replays(OpId before, std::vector<Recompute> group,
                              const std::set<OpId>& added) {
  const auto held_by = [&](const std::vector<Recompute>& replays) {
    return static_cast<std::int64_t>(replay_bytes(profile_, replays, machine_.granule_bytes));
  };
  std::vector<std::pair<Eviction*, std::uint32_t>> moved;  // and where it was
  bool there = true;                                       // what the replays read
  for (Recompute& r : group) {
    if (!added.contains(r.op)) continue;
    const Op& op = profile_.ops[r.op.index()];
    for (TensorId t : op.out)
      if (Eviction* away = worth_keeping(r, t)) {
        moved.emplace_back(away, away->in);
        bring_back(*away, before.value);
        r.keep.insert(std::ranges::upper_bound(r.keep, t), t);
      }
    for (TensorId t : op.in)
      if (Eviction* away = covering(t, before.value); away && !away->recomputed) {
        moved.emplace_back(away, away->in);
        const std::uint32_t position = position_in(*away, before.value);
        bring_back(*away, position);
        there &= away->in <= position;  // not right after it left
      }
  }
  const auto found = replays_.find(before);
  const std::int64_t more = held_by(group) - (found == replays_.end() ? 0 : held_by(found->second));
  level_.add(before.value, before.value + 1, more);
  const bool fits =
      there && level_.at(before.value) <= limit() && std::ranges::all_of(moved, [&](const auto& m) {
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
  for (OpId op : added) recompute_us_ += profile_.ops[op.index()].us;
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

}  // namespace sentinel::plan
