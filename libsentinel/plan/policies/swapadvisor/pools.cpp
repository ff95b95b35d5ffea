// Replays a step's allocations in pools of slots, and notes what each full pool evicts.
#include "plan/policies/swapadvisor/pools.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/units.h"

namespace sentinel::plan {

PoolReplay::PoolReplay(const Profile& profile, const std::vector<Storage>& all,
                       const std::vector<IdleGap>& gaps, std::uint64_t granule_bytes)
    : operands_(profile.ops.size()), dies_(profile.ops.size()), gaps_(gaps.size()) {
  const auto ops = static_cast<std::uint32_t>(profile.ops.size());
  for (const Storage& s : all) sizes_.push_back(round_up(s.bytes, granule_bytes));
  const auto rounded = sizes_;
  std::ranges::sort(sizes_);
  sizes_.erase(std::unique(sizes_.begin(), sizes_.end()), sizes_.end());
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> begins;
  for (std::uint32_t g = 0; g < gaps.size(); ++g) begins[{gaps[g].storage, gaps[g].use}] = g;
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    const Storage& s = all[i];
    size_of_.push_back(
        static_cast<std::uint32_t>(std::ranges::lower_bound(sizes_, rounded[i]) - sizes_.begin()));
    if (s.persistent || s.last >= ops) from_start_.push_back(i);
    for (std::size_t u = 0; u < s.uses.size(); ++u) {
      Operand o{.storage = i, .wait = UINT32_MAX};
      if (u + 1 < s.uses.size())
        o.wait = s.uses[u + 1] - s.uses[u];
      else if (s.persistent)
        o.wait = s.uses.front() + ops - s.uses[u];
      if (const auto found = begins.find({i, s.uses[u]}); found != begins.end())
        o.gap = found->second;
      o.last = !s.persistent && s.uses[u] == s.last;
      operands_[s.uses[u] % ops].push_back(o);
    }
    if (!s.persistent && (s.uses.empty() || s.uses.back() != s.last))
      dies_[s.last % ops].push_back(i);
  }
}

std::vector<std::uint32_t> PoolReplay::used(const Pools& pools) const {
  std::vector<std::uint32_t> most(pools.bytes.size(), 0), now(pools.bytes.size(), 0);
  for (const auto& list : operands_) {
    for (const Operand& o : list) ++now[pool(pools, o.storage)];
    for (const Operand& o : list) {
      std::uint32_t& n = now[pool(pools, o.storage)];
      most[pool(pools, o.storage)] = std::max(most[pool(pools, o.storage)], n);
      n = 0;
    }
  }
  return most;
}

std::vector<std::uint32_t> PoolReplay::alive(const Pools& pools) const {
  std::vector<std::uint32_t> most(pools.bytes.size(), 0), now(pools.bytes.size(), 0);
  std::vector<bool> there(size_of_.size(), false);
  const auto enter = [&](std::uint32_t s) {
    if (there[s]) return;
    there[s] = true;
    const std::uint32_t c = pool(pools, s);
    most[c] = std::max(most[c], ++now[c]);
  };
  const auto go = [&](std::uint32_t s) {
    if (there[s]) --now[pool(pools, s)];
    there[s] = false;
  };
  for (std::uint32_t s : from_start_) enter(s);
  for (std::size_t k = 0; k < operands_.size(); ++k) {
    for (const Operand& o : operands_[k]) enter(o.storage);
    for (const Operand& o : operands_[k])
      if (o.last) go(o.storage);
    for (std::uint32_t s : dies_[k]) go(s);
  }
  return most;
}

// Who is in the pools, and of those that no running op uses, who is used again last.
struct PoolReplay::Resident {
  explicit Resident(std::size_t storages, std::size_t classes)
      : there(storages, false), next(storages, 0), gap(storages, UINT32_MAX), idle(classes) {}
  std::vector<bool> there;
  std::vector<std::uint64_t> next;  // per storage: position of its next use
  std::vector<std::uint32_t> gap;   // per storage: that it is in
  std::vector<std::set<std::pair<std::uint64_t, std::uint32_t>>>
      idle;  // per class: (next, storage)
};

std::vector<bool> PoolReplay::evictions(const Pools& pools) const {
  std::vector<bool> evicted(gaps_, false);
  Resident r(size_of_.size(), pools.bytes.size());
  std::vector<std::uint32_t> room = pools.slots;
  const auto go = [&](std::uint32_t s) {
    const std::uint32_t c = pool(pools, s);
    r.idle[c].erase({r.next[s], s});
    if (r.there[s]) ++room[c];
    r.there[s] = false;
  };
  const std::uint64_t ops = operands_.size();
  for (std::uint64_t position = 0; position < 2 * ops; ++position) {
    if (position == ops) std::fill(evicted.begin(), evicted.end(), false);
    const auto& list = operands_[position % ops];
    for (const Operand& o : list)
      r.idle[pool(pools, o.storage)].erase({r.next[o.storage], o.storage});
    for (const Operand& o : list) {
      const std::uint32_t c = pool(pools, o.storage);
      if (r.there[o.storage]) continue;
      if (room[c] == 0 && !r.idle[c].empty()) {
        const std::uint32_t victim = r.idle[c].rbegin()->second;
        if (r.gap[victim] != UINT32_MAX) evicted[r.gap[victim]] = true;
        go(victim);
      }
      if (room[c] > 0) --room[c], r.there[o.storage] = true;
    }
    for (const Operand& o : list) {
      r.next[o.storage] = o.wait == UINT32_MAX ? UINT64_MAX : position + o.wait;
      r.gap[o.storage] = o.gap;
      if (r.there[o.storage]) r.idle[pool(pools, o.storage)].insert({r.next[o.storage], o.storage});
      if (o.last) go(o.storage);
    }
    for (std::uint32_t s : dies_[position % ops]) go(s);
  }
  return evicted;
}

}  // namespace sentinel::plan
