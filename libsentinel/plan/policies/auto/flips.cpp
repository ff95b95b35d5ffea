// Draws an op by its stalls, or replays by their times, and changes few decisions there.
#include "plan/policies/auto/flips.h"

#include <algorithm>
#include <set>

namespace sentinel::plan {

std::uint32_t Flips::stalled_op(const std::vector<double>& stalls) {
  double sum = 0;
  for (double s : stalls) sum += std::max(0.0, s);
  double at = std::uniform_real_distribution(0.0, std::max(sum, 1e-9))(random_);
  for (std::uint32_t k = 0; k < stalls.size(); ++k)
    if ((at -= std::max(0.0, stalls[k])) <= 0) return k;
  return static_cast<std::uint32_t>(stalls.size() - 1);
}

// Where time goes into replays, some of them become moves; where it goes into waiting, some tensors
// near the op that waits are remade that were moved, kept that left, or let go that were kept.
std::vector<Decision> Flips::operator()(const Candidate& c) {
  double replays = 0, stalls = 0;
  for (const Recompute& r : c.plan.recomputations) replays += facts_.profile.ops[r.op.index()].us;
  for (double s : c.verdict.op_stall_us) stalls += std::max(0.0, s);
  Decisions by_gap;
  for (const Decision& d : c.decisions) by_gap[{d.storage, d.use}] = d;
  if (std::uniform_real_distribution(0.0, replays + stalls + 1e-9)(random_) < replays)
    fewer_replays(c, replays, by_gap);
  else
    relieve(stalled_op(c.verdict.op_stall_us), by_gap);
  std::vector<Decision> result;
  for (const auto& [gap, decision] : by_gap) result.push_back(decision);
  return result;
}

void Flips::fewer_replays(const Candidate& c, double replays_us, Decisions& by_gap) {
  std::set<OpId> chosen;
  for (std::uint64_t n = std::uint64_t{1} << random_() % 4; n > 0; --n) {
    double at = std::uniform_real_distribution(0.0, replays_us)(random_);
    for (const Recompute& r : c.plan.recomputations)
      if ((at -= facts_.profile.ops[r.op.index()].us) <= 0) {
        chosen.insert(r.op);
        break;
      }
  }
  for (std::size_t i = 0; i < facts_.gaps.size(); ++i) {
    if (!facts_.makers[i] || !chosen.contains(*facts_.makers[i])) continue;
    const auto found = by_gap.find({facts_.gaps[i].storage, facts_.gaps[i].use});
    if (found != by_gap.end()) found->second.remedy = Remedy::swap;
  }
}

void Flips::relieve(std::uint32_t k, Decisions& by_gap) {
  const auto ops = static_cast<std::uint32_t>(facts_.profile.ops.size());
  const std::uint32_t reach = 1 + static_cast<std::uint32_t>(random_() % std::max(2u, ops / 32));
  const auto near = [&](std::uint32_t position) {
    const std::uint32_t distance = (position % ops + ops - k) % ops;
    return std::min(distance, ops - distance) <= reach;
  };
  const std::uint64_t chance = 1 + random_() % 4;  // in four
  const std::uint64_t what = random_() % 3;
  for (std::size_t i = 0; i < facts_.gaps.size(); ++i) {
    const IdleGap& g = facts_.gaps[i];
    if ((!near(g.use) && !near(g.next)) || random_() % 4 >= chance) continue;
    const auto found = by_gap.find({g.storage, g.use});
    const bool remakable = facts_.remakable(i);
    if (found == by_gap.end()) {
      if (what != 2) continue;
      Decision& added = by_gap[{g.storage, g.use}] = facts_.swap(g);
      if (remakable) added.remedy = Remedy::recompute;
    } else if (what == 0 && remakable) {
      found->second.remedy = Remedy::recompute;
    } else if (what == 1) {
      by_gap.erase(found);
    }
  }
}

}  // namespace sentinel::plan
