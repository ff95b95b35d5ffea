// Takes wanted gaps in the order in which they end, and finds a chain of replays for each.
#include "plan/gaps/remade.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <string>
#include <utility>

#include "base/units.h"
#include "plan/step/level.h"
#include "plan/step/rates.h"
#include "plan/step/replay.h"

namespace sentinel::plan {
namespace {

class Remaking {
 public:
  Remaking(const Basis& basis, std::uint64_t limit, bool keep)
      : basis_(basis),
        profile_(basis.profile),
        ops_(static_cast<std::uint32_t>(basis.profile.ops.size())),
        limit_(static_cast<std::int64_t>(limit)),
        keep_(keep),
        lost_(basis.storages.size()),
        streamed_(ops_, false),
        must_(least(limit)) {}

  Remade run(const std::vector<LostGap>& wanted) {
    for (const LostGap& gap : wanted) {
      if (possible(gap))
        lost_[gap.storage].push_back({.gap = gap});
      else
        result_.refused.push_back(gap);
    }
    std::vector<Lost*> order;
    for (auto& of_storage : lost_)
      for (Lost& lost : of_storage) order.push_back(&lost);
    std::ranges::stable_sort(order, {}, [](const Lost* lost) { return lost->gap.next; });
    for (Lost* lost : order) {
      if (lost->accepted || remake(*lost)) continue;
      lost->refused = true;
      result_.refused.push_back(lost->gap);
    }
    return finish();
  }

 private:
  struct Lost {
    LostGap gap;
    double us = 0;
    bool accepted = false, refused = false;
  };
  struct OnTheWay {
    Lost* lost;
    TensorId tensor;
    std::size_t replay;  // of the group
  };
  struct Group {  // the replays before one op
    std::vector<Recompute> replays;
    std::int64_t held = 0;  // what they hold beside the op
  };

  // A streamed op needs all memory anyhow; it is not looked at.
  std::vector<std::uint64_t> least(std::uint64_t limit) {
    std::vector<std::uint64_t> must = basis_.demand.must;
    for (std::uint32_t k = 0; k < ops_; ++k) {
      streamed_[k] = must[k] > limit;
      if (streamed_[k]) must[k] = 0;
    }
    return must;
  }

  bool possible(const LostGap& gap) const {
    const Storage& s = basis_.storages[gap.storage];
    if (s.persistent || s.carried || !basis_.movable[gap.storage]) return false;
    if (gap.next >= ops_ || gap.next < gap.use + 2) return false;
    const Tensor& tensor = profile_.tensors[s.tensor.index()];
    if (!tensor.alloc_op || !tensor.free_op) return false;
    if (streamed_[gap.use] || streamed_[gap.next]) return false;
    if (std::ranges::binary_search(s.uses, gap.next) && !reads(profile_, s, gap.next)) return false;
    return basis_.footprint.whole_bytes(s.tensor) > 0;
  }

  // In whose gap op k lies; the gap's end is the op before which it is made again.
  Lost* lost_at(TensorId t, std::uint32_t k) {
    const std::uint32_t storage = basis_.storage_of[t.index()];
    if (storage == UINT32_MAX) return nullptr;
    for (Lost& lost : lost_[storage])
      if (!lost.refused && lost.gap.use < k && k <= lost.gap.next) return &lost;
    return nullptr;
  }

  bool makes(const Recompute& r, TensorId t) const {
    return std::ranges::binary_search(profile_.ops[r.op.index()].out, t);
  }

  bool made(const Group& group, TensorId t) const {
    return std::ranges::any_of(group.replays, [&](const Recompute& r) {
      return makes(r, t) &&
             basis_.replay.version(t, r.op) + 1 == basis_.replay.version(t, r.before);
    });
  }

  bool remake(Lost& lost) {
    const OpId before(lost.gap.next);
    Group group;
    if (const auto found = groups_.find(before); found != groups_.end()) group = found->second;
    const auto available = [&](TensorId t) {
      const bool there = basis_.replay.alive(t, before) && lost_at(t, before.value) == nullptr;
      return there || made(group, t);
    };
    const TensorId wanted = basis_.storages[lost.gap.storage].tensor;
    const auto chain =
        replay_chain(profile_, basis_.replay, wanted, before, available, kMostRecipes);
    if (chain.empty()) return false;
    double us = 0;
    for (const Recompute& r : chain) {
      auto at = std::ranges::find(group.replays, r.op, &Recompute::op);
      if (at == group.replays.end()) {
        at = group.replays.insert(at, {.op = r.op, .before = before});
        us += profile_.ops[r.op.index()].us;
      }
      add_kept(*at, r.keep);
    }
    // In the order of the step each replay finds the version that it read there.
    std::ranges::sort(group.replays, {}, &Recompute::op);
    if (group.replays.size() > kMostRecipes) return false;
    auto kept = keep_ ? made_on_the_way(group, before) : std::vector<OnTheWay>{};
    while (!accept(lost, us, group, kept)) {
      if (kept.empty()) return false;
      kept.resize(kept.size() / 2);  // those that are wanted last are made once more then
    }
    return true;
  }

  bool accept(Lost& lost, double us, Group group, const std::vector<OnTheWay>& kept) {
    const OpId before(lost.gap.next);
    std::vector<Lost*> also{&lost};
    for (const OnTheWay& each : kept) {
      add_kept(group.replays[each.replay], {each.tensor});
      also.push_back(each.lost);
    }
    if (!finds_its_versions(profile_, basis_.replay, group.replays)) return false;
    if (!fits(also, group, before)) return false;
    lost.us = us;
    for (Lost* one : also) {
      one->gap.next = before.value;
      one->accepted = true;
      one->us +=
          remaking_us(basis_.machine, static_cast<double>(basis_.storages[one->gap.storage].bytes));
    }
    groups_[before] = std::move(group);
    return true;
  }

  static void add_kept(Recompute& r, const std::vector<TensorId>& tensors) {
    for (TensorId t : tensors)
      if (!std::ranges::binary_search(r.keep, t))
        r.keep.insert(std::ranges::upper_bound(r.keep, t), t);
  }

  // What is discarded beyond this op, and made here on the way; what is wanted first comes first.
  std::vector<OnTheWay> made_on_the_way(const Group& group, OpId before) {
    std::vector<OnTheWay> result;
    for (std::size_t i = 0; i < group.replays.size(); ++i) {
      const OpId op = group.replays[i].op;
      for (TensorId t : profile_.ops[op.index()].out) {
        Lost* other = lost_at(t, before.value);
        if (other == nullptr || other->accepted || before.value < other->gap.use + 2) continue;
        if (basis_.replay.version(t, before) != basis_.replay.version(t, op) + 1) continue;
        if (other->gap.next != before.value)  // else it comes in its turn
          result.push_back({other, t, i});
      }
    }
    std::ranges::stable_sort(result, {}, [](const OnTheWay& o) { return o.lost->gap.next; });
    return result;
  }

  // Of our memory, what the replays read that none of them makes.
  template <class Visit>
  void for_each_input(const Group& group, Visit visit) const {
    std::set<TensorId> made_before;
    for (const Recompute& r : group.replays) {
      const Op& op = profile_.ops[r.op.index()];
      for (TensorId t : op.in)
        if (!made_before.contains(t) && basis_.storage_of[t.index()] != UINT32_MAX)
          visit(t, basis_.storage_of[t.index()]);
      for (TensorId t : op.out)
        if (!basis_.replay.persistent(t)) made_before.insert(t);
    }
  }

  std::int64_t held_by(const Group& group, OpId before) const {
    std::set<UnitId> units;
    for_each_input(group, [&](TensorId t, std::uint32_t) {
      const auto mine = basis_.footprint.units(t);
      units.insert(mine.begin(), mine.end());
    });
    for (const Recompute& r : group.replays)
      for (TensorId t : r.keep) {
        const auto mine = basis_.footprint.units(t);
        units.insert(mine.begin(), mine.end());
      }
    const Op& op = profile_.ops[before.index()];
    for (const auto* list : {&op.in, &op.out})
      for (TensorId t : *list)
        for (UnitId u : basis_.footprint.units(t)) units.erase(u);
    std::uint64_t bytes = memory(group, before);
    for (UnitId u : units) bytes += basis_.footprint.bytes(u);
    return static_cast<std::int64_t>(bytes);
  }

  std::uint64_t memory(const Group& group, OpId before) const {
    const std::uint64_t computes =
        replay_bytes(profile_, group.replays, basis_.footprint.granule_bytes());
    return computes - std::min(computes, unborn(before));
  }

  // What holds nothing until the op makes it.
  std::uint64_t unborn(OpId op) const {
    std::set<UnitId> units;
    const auto begins = [&](TensorId t) {
      const std::uint32_t i = basis_.storage_of[t.index()];
      return i != UINT32_MAX && !basis_.storages[i].persistent && !basis_.storages[i].carried &&
             basis_.storages[i].first == op.value;
    };
    const auto holds = [&](TensorId t) {
      const std::uint32_t i = basis_.storage_of[t.index()];
      if (i == UINT32_MAX) return false;
      const Storage& s = basis_.storages[i];
      return s.persistent || s.carried || (s.first <= op.value && op.value <= s.last);
    };
    for (TensorId t : profile_.ops[op.index()].out)
      if (begins(t))
        for (UnitId u : basis_.footprint.units(t))
          if (std::ranges::all_of(basis_.footprint.members(u),
                                  [&](TensorId m) { return begins(m) || !holds(m); }))
            units.insert(u);
    std::uint64_t bytes = 0;
    for (UnitId u : units) bytes += basis_.footprint.bytes(u);
    return bytes;
  }

  // The replays beside the op, and at each op of the gaps the granules that they go on to hold.
  bool fits(const std::vector<Lost*>& lost, Group& group, OpId before) {
    const std::int64_t held = held_by(group, before), more = held - group.held;
    std::uint32_t first = before.value;
    const auto add = [&](std::int64_t sign) {
      must_.add(before.value, before.value + 1, sign * more);
      for (const Lost* one : lost) {
        first = std::min(first, one->gap.use + 1);
        must_.add(one->gap.use + 1, before.value, sign * ends(*one));
      }
    };
    add(1);
    group.held = held;
    if (must_.most(first, before.value + 1) <= limit_) return true;
    add(-1);
    return false;
  }

  std::int64_t ends(const Lost& lost) const {
    const TensorId tensor = basis_.storages[lost.gap.storage].tensor;
    std::uint64_t all = 0;
    for (UnitId u : basis_.footprint.units(tensor)) all += basis_.footprint.bytes(u);
    return static_cast<std::int64_t>(all - basis_.footprint.whole_bytes(tensor));
  }

  void read_at(std::uint32_t storage, TensorId t, std::uint32_t op) {
    Storage& s = result_.storages[storage];
    const std::uint32_t position = s.carried && t == *s.carried ? op + ops_ : op;
    result_.reads.push_back({storage, position});
    const auto at = std::ranges::lower_bound(s.uses, position);
    if (at == s.uses.end() || *at != position) s.uses.insert(at, position);
  }

  Remade finish() {
    result_.storages = basis_.storages;
    result_.memory.assign(ops_, 0);
    for (const auto& [before, group] : groups_) {
      result_.replays.insert(result_.replays.end(), group.replays.begin(), group.replays.end());
      result_.memory[before.index()] = memory(group, before);
      for_each_input(group,
                     [&](TensorId t, std::uint32_t storage) { read_at(storage, t, before.value); });
    }
    for (const auto& of_storage : lost_)
      for (const Lost& lost : of_storage) {
        if (!lost.accepted) continue;
        result_.gaps.push_back(lost.gap);
        result_.cost.push_back(lost.us);
        read_at(lost.gap.storage, basis_.storages[lost.gap.storage].tensor, lost.gap.next);
      }
    std::ranges::sort(result_.reads);
    const auto repeated = std::ranges::unique(result_.reads);
    result_.reads.erase(repeated.begin(), repeated.end());
    return std::move(result_);
  }

  const Basis& basis_;
  const Profile& profile_;
  std::uint32_t ops_;
  std::int64_t limit_;
  bool keep_;
  std::vector<std::vector<Lost>> lost_;  // per storage, by use
  std::vector<bool> streamed_;
  Level must_;
  std::map<OpId, Group> groups_;  // by the op that they precede
  Remade result_;
};

}  // namespace

Remade remade(const Basis& basis, std::uint64_t limit, const std::vector<LostGap>& wanted,
              bool keep) {
  return Remaking(basis, limit, keep).run(wanted);
}

Demand demand(const Basis& basis, const Remade& made) {
  Demand result = demand(basis.profile, made.storages, basis.movable, basis.footprint);
  for (auto* list : {&result.all, &result.must, &result.reserved})
    for (std::size_t k = 0; k < list->size(); ++k) (*list)[k] += made.memory[k];
  return result;
}

void give_replay_reasons(Plan& plan, const Profile& profile, const Machine& machine) {
  const auto name = [&](OpId op) {
    return fmt::format("op {} ({})", op.value, profile.ops[op.index()].name);
  };
  const auto& all = plan.recomputations;
  std::map<std::pair<TensorId, OpId>, std::size_t> kept;  // by the op before which it is back
  for (std::size_t i = 0; i < all.size(); ++i)
    for (TensorId t : all[i].keep) kept[{t, all[i].before}] = i;
  for (Move& m : plan.moves) {
    if (m.direction != Direction::discard) continue;
    const auto found = kept.upper_bound({m.tensor, m.trigger});
    if (found == kept.end() || found->first.first != m.tensor) continue;
    const Recompute& last = all[found->second];
    const double bytes = static_cast<double>(profile.tensors[m.tensor.index()].bytes);
    double us = remaking_us(machine, bytes);
    std::string by;
    // The replays before one op serve all that is made again there; those up to its maker count.
    const auto [first, end] = std::ranges::equal_range(all, last.before, {}, &Recompute::before);
    for (const Recompute& r : std::ranges::subrange(first, end)) {
      if (r.op > last.op) continue;
      by += (by.empty() ? "" : ", ") + name(r.op);
      us += profile.ops[r.op.index()].us;
    }
    const double move =
        bytes / rate(machine, 0, 1) + bytes / rate(machine, 1, 0) + moving_us(machine, 2 * bytes);
    m.reason = fmt::format("made again before {} by {}, which takes {}; a move would take {}",
                           name(last.before), by, print_us(us), print_us(move));
  }
}

}  // namespace sentinel::plan
