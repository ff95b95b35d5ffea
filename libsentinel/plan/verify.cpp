#include "plan/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/units.h"
#include "plan/footprint.h"
#include "plan/layout.h"
#include "plan/parts.h"
#include "plan/replay.h"
#include "plan/storage.h"

namespace sentinel::plan {
namespace {

constexpr std::size_t kMostViolations = 20;

class Violations {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    if (list_.size() < kMostViolations)
      list_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  bool empty() const { return list_.empty(); }
  std::vector<std::string> take() { return std::move(list_); }

 private:
  std::vector<std::string> list_;
};

std::string named(const Profile& profile, TensorId t) {
  return fmt::format("tensor {} ({})", t.value, profile.tensors[t.index()].name);
}

void check_ids(const Plan& plan, const Profile& profile, Violations& bad) {
  const auto op_ok = [&](OpId op) { return op.index() < profile.ops.size(); };
  for (const Move& m : plan.moves) {
    if (m.tensor.index() >= profile.tensors.size())
      bad.add("a move names tensor {}, which does not exist", m.tensor.value);
    else if (profile.tensors[m.tensor.index()].foreign)
      bad.add("{} is foreign memory and must not move", named(profile, m.tensor));
    if (!op_ok(m.trigger) || !op_ok(m.deadline))
      bad.add("a move of tensor {} is triggered by op {} with deadline {}; the step has {} ops",
              m.tensor.value, m.trigger.value, m.deadline.value, profile.ops.size());
    if (m.tier == 0) bad.add("a move of tensor {} names no slower tier", m.tensor.value);
  }
  for (const Recompute& r : plan.recomputations)
    for (TensorId t : r.keep)
      if (t.index() >= profile.tensors.size())
        bad.add("a replay keeps tensor {}, which does not exist", t.value);
  for (OpId op : plan.streamed_ops)
    if (!op_ok(op)) bad.add("streamed op {} does not exist", op.value);
  for (const InPlace& p : plan.in_place)
    if (p.tensor.index() >= profile.tensors.size() || !op_ok(p.op))
      bad.add("a use in place names tensor {} and op {}", p.tensor.value, p.op.value);
  for (const Birth& b : plan.births)
    if (b.tensor.index() >= profile.tensors.size() || b.tier == 0)
      bad.add("tensor {} is to be made in tier {}", b.tensor.value, b.tier);
  if (!std::ranges::is_sorted(plan.in_place) ||
      !std::ranges::is_sorted(plan.births, {}, &Birth::tensor))
    bad.add("uses in place and births are not sorted");
  for (const Placement& p : plan.placements) {
    if (p.tensor.index() >= profile.tensors.size())
      bad.add("a placement names tensor {}, which does not exist", p.tensor.value);
    if (p.group.index() >= plan.groups.size())
      bad.add("tensor {} is placed in group {}, which does not exist", p.tensor.value,
              p.group.value);
  }
  if (plan.granule_bytes == 0) bad.add("granule_bytes is 0");
}

void check_groups(const Plan& plan, Violations& bad) {
  std::vector<const Group*> order;
  std::uint64_t reserved = 0;
  for (const Group& g : plan.groups) {
    if (g.offset % plan.granule_bytes != 0 || g.bytes % plan.granule_bytes != 0)
      bad.add("the group at {} is not granule aligned", g.offset);
    if (g.pool == Pool::short_lived) reserved += g.bytes;
    order.push_back(&g);
  }
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  std::uint64_t end = 0;
  for (const Group* g : order) {
    if (g->offset < end) bad.add("groups overlap at {}", g->offset);
    end = std::max(end, g->offset + g->bytes);
  }
  if (end > plan.region_bytes)
    bad.add("the region has {} bytes, its groups need {}", plan.region_bytes, end);
  if (reserved != plan.reserved_bytes)
    bad.add("reserved_bytes is {}, the short-lived groups have {}", plan.reserved_bytes, reserved);
}

std::uint32_t apart(LayerId a, LayerId b) {
  return std::max(a.value, b.value) - std::min(a.value, b.value);
}

void check_placements(const Plan& plan, const Profile& profile,
                      const std::vector<Storage>& storages, Violations& bad) {
  std::map<std::uint32_t, const Placement*> of;
  for (const Placement& p : plan.placements)
    if (!of.emplace(p.tensor.value, &p).second)
      bad.add("{} is placed twice", named(profile, p.tensor));
  for (const Storage& s : storages) {
    const auto found = of.find(s.tensor.value);
    if (s.persistent && found != of.end())
      bad.add("{} is persistent and cannot be placed", named(profile, s.tensor));
    if (s.persistent || found == of.end()) continue;
    const Placement& p = *found->second;
    const Group& g = plan.groups[p.group.index()];
    if (p.offset < g.offset || p.offset + s.bytes > g.offset + g.bytes)
      bad.add("{} lies outside its group", named(profile, s.tensor));
    if ((g.pool == Pool::short_lived) != s.short_lived())
      bad.add("{}: short- and long-lived tensors share a group", named(profile, s.tensor));
    const std::uint32_t slack = 2 * lifetime_slack(g.first_layer, g.last_layer, plan.granule_bytes);
    if (g.pool == Pool::long_lived && !s.carried &&
        (apart(s.first_layer, g.first_layer) > slack || apart(s.last_layer, g.last_layer) > slack))
      bad.add("{}: different lifetimes share a group", named(profile, s.tensor));
  }
}

bool alive(const Storage& s, OpId op, std::uint32_t ops) {
  return s.persistent || (op.value >= s.first && op.value <= s.last) || op.value + ops <= s.last;
}

void check_triggers(const Plan& plan, const Profile& profile, const std::vector<Storage>& storages,
                    Violations& bad) {
  std::vector<const Storage*> of(profile.tensors.size(), nullptr);
  for (const Storage& s : storages) {
    of[s.tensor.index()] = &s;
    if (s.carried) of[s.carried->index()] = &s;
  }
  const auto ops = static_cast<std::uint32_t>(profile.ops.size());
  for (const Move& m : plan.moves) {
    const Storage* s = of[m.tensor.index()];
    if (!s || !alive(*s, m.trigger, ops))
      bad.add("{} is moved at op {} while it does not exist", named(profile, m.tensor),
              m.trigger.value);
  }
}

// Walks one cyclic step with the set of addresses in use.
class OverlapCheck {
 public:
  OverlapCheck(const Plan& plan, const Profile& profile, Violations& bad)
      : profile_(profile), bad_(bad), offset_(profile.tensors.size(), kNone) {
    for (const Placement& p : plan.placements) offset_[p.tensor.index()] = p.offset;
  }

  void run(const std::vector<Storage>& storages) {
    const auto ops = static_cast<std::uint32_t>(profile_.ops.size());
    std::vector<std::vector<const Storage*>> begin(ops), end(ops);
    for (const Storage& s : storages) {
      if (offset_[s.tensor.index()] == kNone) continue;
      begin[s.first].push_back(&s);
      end[s.last % ops].push_back(&s);
      if (s.last >= ops) occupy(s);
    }
    for (std::uint32_t k = 0; k < ops; ++k) {
      for (const Storage* s : begin[k]) occupy(*s);
      for (const Storage* s : end[k]) used_.erase(offset_[s->tensor.index()]);
    }
  }

 private:
  static constexpr std::uint64_t kNone = UINT64_MAX;

  void occupy(const Storage& s) {
    const std::uint64_t at = offset_[s.tensor.index()];
    const auto after = used_.lower_bound(at);
    if (after != used_.end() && after->first < at + s.bytes) clash(s, *after->second);
    if (after != used_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second->bytes > at) clash(s, *before->second);
    }
    used_[at] = &s;
  }

  void clash(const Storage& a, const Storage& b) {
    bad_.add("{} and {} overlap while both are alive", named(profile_, a.tensor),
             named(profile_, b.tensor));
  }

  const Profile& profile_;
  Violations& bad_;
  std::vector<std::uint64_t> offset_;             // per tensor
  std::map<std::uint64_t, const Storage*> used_;  // by offset
};

// Executes the moves over two steps as the engine would, with every write taking as long as the
// plan allows, and checks the second.
class TwoSteps {
 public:
  TwoSteps(const Plan& plan, const Profile& profile, const std::vector<Storage>& storages,
           Violations& bad)
      : plan_(plan),
        profile_(profile),
        storages_(storages),
        bad_(bad),
        ops_(static_cast<std::uint32_t>(profile.ops.size())),
        footprint_(profile, plan.placements, plan.granule_bytes),
        holding_(footprint_),
        of_(profile.tensors.size(), kNone),
        held_(storages.size()),
        resident_(storages.size(), false),
        lost_(storages.size(), false),
        release_(storages.size(), kNone),
        streamed_(ops_, false),
        born_away_(storages.size(), false),
        begin_(ops_),
        end_(ops_),
        use_(ops_),
        promote_(ops_),
        demote_(ops_),
        releases_(ops_),
        replays_(ops_) {
    index();
  }

  std::uint64_t run() {
    std::vector<bool> absent(storages_.size(), false);
    for (TensorId t : absent_at_start(plan_, profile_)) absent[of_[t.index()]] = true;
    for (const Move& m : plan_.moves)  // in order: the last one that leaves decides
      if (const std::uint32_t i = of_[m.tensor.index()]; i != kNone && absent[i])
        lost_[i] = m.direction == Direction::discard;
    for (std::uint32_t i = 0; i < storages_.size(); ++i)
      if ((storages_[i].persistent || storages_[i].carried) && !absent[i] && !born_away_[i])
        arrive(i);
    for (int lap = 0; lap < 2; ++lap)
      for (std::uint32_t k = 0; k < ops_; ++k) step(k, lap == 1);
    return peak_;
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  void index() {
    for (std::uint32_t i = 0; i < storages_.size(); ++i) {
      const Storage& s = storages_[i];
      of_[s.tensor.index()] = i;
      if (s.carried) of_[s.carried->index()] = i;
      if (!s.persistent) begin_[s.first].push_back(i);
      if (!s.persistent) end_[s.last % ops_].push_back(i);
      for (std::uint32_t use : s.uses) use_[use % ops_].push_back(i);
    }
    for (OpId op : plan_.streamed_ops) streamed_[op.index()] = true;
    for (const Birth& b : plan_.births)
      if (of_[b.tensor.index()] != kNone) born_away_[of_[b.tensor.index()]] = true;
    for (const Move& m : plan_.moves)
      (m.direction == Direction::promote ? promote_ : demote_)[m.trigger.index()].push_back(&m);
    for (const Recompute& r : plan_.recomputations) replays_[r.before.index()].push_back(r);
  }

  void arrive(std::uint32_t i) {
    resident_[i] = true;
    lost_[i] = false;
    release_[i] = kNone;
    if (!held_[i]) holding_.hold(storages_[i].tensor);
    held_[i] = true;
  }

  void leave(std::uint32_t i) {
    if (held_[i]) holding_.drop(storages_[i].tensor);
    held_[i] = false;
    release_[i] = kNone;
  }

  void demote(const Move& m, std::uint32_t k) {
    const std::uint32_t i = of_[m.tensor.index()];
    if (i == kNone || !resident_[i]) return;
    resident_[i] = false;
    lost_[i] = m.direction == Direction::discard;
    if (lost_[i] || m.deadline.value == k) return leave(i);
    release_[i] = m.deadline.value;
    releases_[m.deadline.index()].push_back(i);
  }

  void step(std::uint32_t k, bool check) {
    for (std::uint32_t i : begin_[k])
      if (!born_away_[i]) arrive(i);
    for (const Move* m : promote_[k]) promote(*m, check);
    run_replays(k, check);
    for (std::uint32_t i : use_[k]) remake(i, k);
    if (check) check_op(k);
    for (std::uint32_t i : std::exchange(releases_[k], {}))
      if (release_[i] == k) leave(i);
    for (const Move* m : demote_[k]) demote(*m, k);
    for (std::uint32_t i : end_[k]) {
      resident_[i] = false;
      leave(i);
    }
  }

  void promote(const Move& m, bool check) {
    const std::uint32_t i = of_[m.tensor.index()];
    if (i == kNone) return;
    if (check && lost_[i])
      bad_.add("op {} promotes {}, whose contents were discarded", m.trigger.value,
               named(profile_, m.tensor));
    arrive(i);
  }

  // The legality of their order is illegal_replays()'s to check; here: what they read is there.
  void run_replays(std::uint32_t k, bool check) {
    std::set<TensorId> made;
    for (const Recompute& r : replays_[k]) {
      for (TensorId t : profile_.ops[r.op.index()].in) {
        const std::uint32_t i = of_[t.index()];
        if (check && i != kNone && !resident_[i] && !made.contains(t))
          bad_.add("the replay of op {} before op {} reads {}, which is not there", r.op.value, k,
                   named(profile_, t));
      }
      const auto& out = profile_.ops[r.op.index()].out;
      made.insert(out.begin(), out.end());
      for (TensorId t : r.keep)
        if (of_[t.index()] != kNone) arrive(of_[t.index()]);
    }
    replayed_bytes_ = replay_bytes(profile_, replays_[k], plan_.granule_bytes);
  }

  // What was discarded and is overwritten whole is there again.
  void remake(std::uint32_t i, std::uint32_t k) {
    const Storage& s = storages_[i];
    const auto named_in = [&](const std::vector<TensorId>& list) {
      return std::ranges::binary_search(list, s.tensor) ||
             (s.carried && std::ranges::binary_search(list, *s.carried));
    };
    const Op& op = profile_.ops[k];
    if (!resident_[i] && lost_[i] && !named_in(op.in) && named_in(op.out)) arrive(i);
  }

  void check_op(std::uint32_t k) {
    const std::uint64_t limit =
        plan_.fast_bytes - std::min(plan_.fast_bytes, plan_.frame_pool_bytes);
    if (streamed_[k]) {
      peak_ = std::max(peak_, limit);
      return;
    }
    const std::uint64_t held = holding_.bytes() + replayed_bytes_;
    peak_ = std::max(peak_, held);
    if (held > limit)
      bad_.add("op {} holds {} bytes of fast memory, {} are allowed", k, held, limit);
    for (std::uint32_t i : use_[k])
      if (!resident_[i] && !in_place(i, k))
        bad_.add("op {} uses {} while it is demoted", k, named(profile_, storages_[i].tensor));
  }

  bool in_place(std::uint32_t i, std::uint32_t k) const {
    const Storage& s = storages_[i];
    const auto listed = [&](TensorId t) {
      return std::ranges::binary_search(plan_.in_place, InPlace{t, OpId(k)});
    };
    return !lost_[i] && (listed(s.tensor) || (s.carried && listed(*s.carried)));
  }

  const Plan& plan_;
  const Profile& profile_;
  const std::vector<Storage>& storages_;
  Violations& bad_;
  std::uint32_t ops_;
  Footprint footprint_;
  Holding holding_;
  std::vector<std::uint32_t> of_;  // per tensor, its storage
  std::vector<bool> held_, resident_, lost_;
  std::vector<std::uint32_t> release_;  // op at whose end a demoted storage lets go
  std::vector<bool> streamed_, born_away_;
  std::vector<std::vector<std::uint32_t>> begin_, end_, use_;
  std::vector<std::vector<const Move*>> promote_, demote_;
  std::vector<std::vector<std::uint32_t>> releases_;
  std::vector<std::vector<Recompute>> replays_;
  std::uint64_t replayed_bytes_ = 0;  // of the replays before the current op
  std::uint64_t peak_ = 0;
};

void check_totals(const Plan& plan, std::uint64_t peak, Violations& bad) {
  if (plan.peak_fast_bytes > plan.fast_bytes)
    bad.add("the planned peak is {} bytes, the budget {}", plan.peak_fast_bytes, plan.fast_bytes);
  if (peak + plan.frame_pool_bytes > plan.peak_fast_bytes)
    bad.add("peak_fast_bytes is {}, the moves lead to {}", plan.peak_fast_bytes,
            peak + plan.frame_pool_bytes);
}

}  // namespace

std::vector<std::string> verify(const Plan& plan, const Profile& profile) {
  if (plan.part_bytes != 0) {
    Plan whole = plan;
    whole.part_bytes = 0;
    return verify(whole, in_parts(profile, plan.part_bytes));
  }
  Violations bad;
  check_ids(plan, profile, bad);
  if (profile.ops.empty() || !bad.empty()) return bad.take();
  const auto all = storages(profile);
  check_groups(plan, bad);
  check_placements(plan, profile, all, bad);
  check_triggers(plan, profile, all, bad);
  for (const std::string& illegal : illegal_replays(plan, profile)) bad.add("{}", illegal);
  if (!bad.empty()) return bad.take();
  OverlapCheck(plan, profile, bad).run(all);
  check_totals(plan, TwoSteps(plan, profile, all, bad).run(), bad);
  return bad.take();
}

std::vector<TensorId> absent_at_start(const Plan& plan, const Profile& profile) {
  std::map<std::uint32_t, std::pair<std::uint32_t, Direction>> last;  // by tensor: op, direction
  for (const Move& m : plan.moves) {
    const std::pair now{m.trigger.value, m.direction};  // at one op, the demotion is the later
    auto [at, first] = last.emplace(m.tensor.value, now);
    if (!first) at->second = std::max(at->second, now);
  }
  std::vector<TensorId> absent;
  for (const Storage& s : storages(profile)) {
    const auto found = last.find(s.tensor.value);
    if ((s.persistent || s.carried) && found != last.end() &&
        found->second.second != Direction::promote)
      absent.push_back(s.carried.value_or(s.tensor));
  }
  return absent;
}

}  // namespace sentinel::plan
