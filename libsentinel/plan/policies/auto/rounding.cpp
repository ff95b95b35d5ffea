// Rounds the shares of the bound's solution to whole parts, and covers the rest.
#include "plan/policies/auto/rounding.h"

#include <algorithm>
#include <set>
#include <utility>

#include "plan/gaps/cover.h"
#include "plan/step/level.h"
#include "plan/step/parts.h"

namespace sentinel::plan {
namespace {

// What is too much after rounding leaves too.
void cover_rest(const Facts& facts, double slack, std::vector<Decision>& decided) {
  Level level(facts.held);
  std::set<std::pair<std::uint32_t, std::uint32_t>> taken;
  for (const Decision& d : decided) {
    taken.emplace(d.storage, d.use);
    level.add(d.use + 1, d.next, -static_cast<std::int64_t>(facts.storages[d.storage].bytes));
  }
  std::vector<std::uint64_t> held;
  for (std::uint32_t k = 0; k < facts.held.size(); ++k)
    held.push_back(static_cast<std::uint64_t>(std::max<std::int64_t>(0, level.at(k))));
  std::vector<IdleGap> rest;
  for (const IdleGap& g : facts.gaps)
    if (!taken.contains({g.storage, g.use})) rest.push_back(g);
  for (std::uint32_t g :
       cover({.gaps = rest, .held = held, .limit = facts.limit(slack), .cost = {}}))
    decided.push_back(facts.swap(rest[g]));
}

// The slower tier of those the gap goes to that is owed most bytes; none if it goes nowhere.
std::size_t most_owed(const std::vector<double>& share, const std::vector<double>& owed) {
  std::size_t most = share.size();
  for (std::size_t i = 0; i < share.size(); ++i)
    if (share[i] > 0 && (most == share.size() || owed[i] > owed[most])) most = i;
  return most;
}

}  // namespace

std::vector<Decision> rounded(const Facts& facts, const Bound& bound, double slack) {
  const auto first = first_parts(facts.whole, facts.part_bytes);
  const auto whole = storages(facts.whole);
  const auto& of = facts.basis.storage_of;
  std::vector<double> owed(facts.machine.tiers.size(), 0);  // bytes, to each slower tier
  std::vector<Decision> result;
  for (const GapShare& g : bound.gaps) {
    const TensorId t = whole[g.storage].tensor;
    for (std::size_t i = 0; i < g.evicted.size(); ++i)
      owed[i] += g.evicted[i] * static_cast<double>(whole[g.storage].bytes);
    for (std::uint32_t part = first[t.index()]; part < first[t.index() + 1]; ++part) {
      const auto bytes = static_cast<double>(facts.profile.tensors[part].bytes);
      const std::size_t tier = most_owed(g.evicted, owed);
      if (tier == g.evicted.size() || owed[tier] < bytes / 2 || of[part] == UINT32_MAX) continue;
      owed[tier] -= bytes;
      result.push_back(facts.swap({.storage = of[part], .use = g.use, .next = g.next}));
      result.back().tier = static_cast<std::uint32_t>(tier + 1);
    }
  }
  cover_rest(facts, slack, result);
  return result;
}

}  // namespace sentinel::plan
