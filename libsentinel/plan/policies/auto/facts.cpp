// Finds a gap's makers, and what remaking and swapping it costs.
#include "plan/policies/auto/facts.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/clock.h"
#include "plan/gaps/pressure.h"
#include "plan/gaps/scheduled.h"
#include "plan/step/rates.h"
#include "plan/step/replay.h"
#include "sentinel/policy.h"

namespace sentinel::plan {
namespace {

constexpr std::size_t kLongestChain = 24;  // of replays, where their cost is estimated

std::vector<std::optional<OpId>> find_makers(const Basis& basis, const std::vector<IdleGap>& gaps) {
  const auto& [storages, replay] = std::tie(basis.storages, basis.replay);
  const auto ops = static_cast<std::uint32_t>(basis.profile.ops.size());
  std::vector<std::optional<OpId>> result;
  for (const IdleGap& g : gaps)
    result.push_back(g.next < ops ? replay.maker(storages[g.storage].at(g.next, ops), OpId(g.next))
                                  : std::nullopt);
  return result;
}

// What remaking costs while all it needs is there; a chain's time is divided among the bytes of all
// it makes. Past the time limit nothing is remade.
std::vector<double> remake_costs(const Basis& basis, const std::vector<IdleGap>& gaps,
                                 double time_limit_s) {
  const auto& [profile, storages, replay] = std::tie(basis.profile, basis.storages, basis.replay);
  const auto ops = static_cast<std::uint32_t>(profile.ops.size());
  std::vector<double> costs;
  const auto begin = Clock::now();
  const auto late = [&] { return seconds_since(begin) > time_limit_s; };
  for (const IdleGap& g : gaps) {
    costs.push_back(Facts::kNever);
    if (g.next >= ops || !g.needed || late()) continue;
    const OpId before(g.next);
    const auto chain = replay_chain(
        profile, replay, storages[g.storage].at(g.next, ops), before,
        [&](TensorId t) { return replay.alive(t, before); }, kLongestChain);
    double us = 0;
    std::set<TensorId> made;
    for (const Recompute& r : chain) {
      us += profile.ops[r.op.index()].us;
      for (TensorId t : profile.ops[r.op.index()].out)
        if (replay.alive(t, before)) made.insert(t);
    }
    double bytes = 0;
    for (TensorId t : made) bytes += static_cast<double>(profile.tensors[t.index()].bytes);
    if (!chain.empty()) costs.back() = us / std::max(bytes, 1.0);
  }
  return costs;
}

// On frames those alone that free some when they leave.
std::vector<IdleGap> gaps_of(const Basis& basis, bool frames) {
  auto gaps = idle_gaps(basis.profile, basis.storages, basis.machine);
  if (!frames) return gaps;
  std::erase_if(gaps, [&](IdleGap& gap) {
    gap.bytes = freed_bytes(basis.footprint, basis.storages[gap.storage]);
    return gap.bytes == 0 || !basis.movable[gap.storage];
  });
  return gaps;
}

}  // namespace

bool Facts::framed(const Machine& machine, const PlanOptions& options) {
  return options.recompute && granules_are_shared(machine);
}

Facts::Facts(const Profile& whole_step, std::uint64_t bytes, const Profile& cut, const Machine& m,
             const PlanOptions& o)
    : whole(whole_step),
      part_bytes(bytes),
      basis(cut, m, framed(m, o) ? shared_layout(cut, m, o) : Layout{}),
      profile(cut),
      machine(m),
      options(o),
      frames(framed(m, o)),
      storages(basis.storages),
      held(basis.demand.all),
      gaps(gaps_of(basis, frames)),
      makers(find_makers(basis, gaps)),
      remake_us_per_byte(remake_costs(basis, gaps, options.time_limit_s / 2)) {}

double Facts::swap_us_per_byte(const IdleGap& g) const {
  return (g.dirty ? 1 / rate(machine, 0, 1) : 0) + (g.needed ? 1 / rate(machine, 1, 0) : 0);
}

Decision Facts::swap(const IdleGap& g) const {
  return {.storage = g.storage,
          .use = g.use,
          .next = g.next,
          .remedy = Remedy::swap,
          .fetch = g.use + 1};
}

}  // namespace sentinel::plan
