// Checks ids, placements, overlaps, triggers, totals and tiers, then the two steps.
#include "plan/check/verify.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/checked.h"
#include "plan/check/two_steps.h"
#include "plan/check/violations.h"
#include "plan/layout/layout.h"
#include "plan/step/parts.h"
#include "plan/step/replay.h"
#include "plan/step/storage.h"
#include "trace/validate.h"

namespace sentinel::plan {
namespace {

constexpr std::uint64_t kMostBytes = max_total_bytes;
constexpr std::uint64_t kMostGranule = std::uint64_t{1} << 40;

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
  for (const Group& g : plan.groups)
    if (std::max(g.first_layer, g.last_layer).index() >= profile.layers.size())
      bad.add("the group at {} lives from layer {} to {}; the step has {} layers", g.offset,
              g.first_layer.value, g.last_layer.value, profile.layers.size());
}

// Nothing after this adds up numbers that could wrap together.
void check_numbers(const Plan& plan, Violations& bad) {
  if (plan.granule_bytes == 0) bad.add("granule_bytes is 0");
  if (plan.granule_bytes > kMostGranule) bad.add("granule_bytes is {}", plan.granule_bytes);
  const std::pair<const char*, std::uint64_t> sizes[] = {
      {"fast_bytes", plan.fast_bytes},
      {"part_bytes", plan.part_bytes},
      {"region_bytes", plan.region_bytes},
      {"reserved_bytes", plan.reserved_bytes},
      {"peak_fast_bytes", plan.peak_fast_bytes},
      {"frame_pool_bytes", plan.frame_pool_bytes},
      {"smallest_budget", plan.smallest_budget},
      {"smallest_unstreamed_budget", plan.smallest_unstreamed_budget},
      {"paper_bound", plan.paper_bound}};
  for (const auto& [name, bytes] : sizes)
    if (bytes > kMostBytes) bad.add("{} is {}, more than any memory has", name, bytes);
  const auto time_ok = [](double us) { return std::isfinite(us) && us >= 0 && us < 1e15; };
  if (!time_ok(plan.predicted_step_us)) bad.add("predicted_step_us is no time");
  for (const Move& m : plan.moves)
    if (!time_ok(m.delay_us)) bad.add("a move of tensor {} is delayed by no time", m.tensor.value);
  for (const IntervalPoint& p : plan.curve)
    if (!time_ok(p.exposed_us) || !std::isfinite(p.reserved_bytes))
      bad.add("the curve's point of {} layers is no time or no size", p.layers);
}

void check_groups(const Plan& plan, Violations& bad) {
  std::vector<const Group*> order;
  std::uint64_t reserved = 0;
  for (const Group& g : plan.groups) {
    if (g.offset % plan.granule_bytes != 0 || g.bytes % plan.granule_bytes != 0)
      bad.add("the group at {} is not granule aligned", g.offset);
    if (g.pool == Pool::short_lived) reserved = saturated_sum(reserved, g.bytes);
    if (!ByteRange{g.offset, g.bytes}.within(plan.region_bytes))
      bad.add("the region has {} bytes, the group at {} has {} more", plan.region_bytes, g.offset,
              g.bytes);
    order.push_back(&g);
  }
  if (!bad.empty()) return;
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  std::uint64_t end = 0;
  for (const Group* g : order) {
    if (g->offset < end) bad.add("groups overlap at {}", g->offset);
    end = std::max(end, g->offset + g->bytes);
  }
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
    if (!ByteRange{p.offset, s.bytes}.within(ByteRange{g.offset, g.bytes}))
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

void check_totals(const Plan& plan, std::uint64_t peak, Violations& bad) {
  if (plan.peak_fast_bytes > plan.fast_bytes)
    bad.add("the planned peak is {} bytes, the budget {}", plan.peak_fast_bytes, plan.fast_bytes);
  if (peak + plan.frame_pool_bytes > plan.peak_fast_bytes)
    bad.add("peak_fast_bytes is {}, the moves lead to {}", plan.peak_fast_bytes,
            peak + plan.frame_pool_bytes);
}

void check_tiers(const Plan& plan, const Machine& machine, Violations& bad) {
  const auto exists = [&](TensorId t, std::uint32_t tier) {
    if (tier >= machine.tiers.size())
      bad.add("tensor {} is sent to tier {}; machine {} has {} tiers", t.value, tier, machine.name,
              machine.tiers.size());
  };
  for (const Move& m : plan.moves)
    if (m.direction != Direction::discard) exists(m.tensor, m.tier);
  for (const Birth& b : plan.births) exists(b.tensor, b.tier);
}

std::vector<std::string> verify(const Plan& plan, const Profile& profile, const Machine* machine) {
  if (plan.part_bytes != 0) {
    if (const auto refused = parts_refused(profile, plan.part_bytes)) return {*refused};
    Plan whole = plan;
    whole.part_bytes = 0;
    return verify(whole, in_parts(profile, plan.part_bytes), machine);
  }
  Violations bad;
  check_numbers(plan, bad);
  check_ids(plan, profile, bad);
  if (machine != nullptr) check_tiers(plan, *machine, bad);
  if (profile.ops.empty() || !bad.empty()) return bad.take();
  const auto all = storages(profile);
  check_groups(plan, bad);
  if (!bad.empty()) return bad.take();
  check_placements(plan, profile, all, bad);
  check_triggers(plan, profile, all, bad);
  for (const std::string& illegal : illegal_replays(plan, profile)) bad.add("{}", illegal);
  if (!bad.empty()) return bad.take();
  OverlapCheck(plan, profile, bad).run(all);
  check_totals(plan, check_two_steps(plan, profile, all, machine, bad), bad);
  return bad.take();
}

}  // namespace

std::vector<std::string> verify(const Plan& plan, const Profile& profile) {
  return verify(plan, profile, nullptr);
}

std::vector<std::string> verify(const Plan& plan, const Profile& profile, const Machine& machine) {
  return verify(plan, profile, &machine);
}

}  // namespace sentinel::plan
