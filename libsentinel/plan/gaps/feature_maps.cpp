// Finds the gaps between a tensor's last forward use and its first backward one.
#include "plan/gaps/feature_maps.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel::plan {
namespace {

// Index of the use after which the gap begins; the number of uses if there is none.
std::size_t gap_begin(const Profile& profile, const std::vector<std::uint32_t>& uses, bool phases) {
  const auto forward = [&](std::uint32_t use) { return profile.ops[use].phase == Phase::forward; };
  std::size_t best = uses.size();
  for (std::size_t u = 0; u + 1 < uses.size(); ++u) {
    if (phases && (!forward(uses[u]) || forward(uses[u + 1]))) continue;
    if (best == uses.size() || uses[u + 1] - uses[u] > uses[best + 1] - uses[best]) best = u;
  }
  return best;
}

}  // namespace

std::vector<IdleGap> feature_maps(const Profile& profile, const std::vector<Storage>& all) {
  const bool phases =
      std::ranges::any_of(profile.ops, [](const Op& op) { return op.phase != Phase::forward; });
  std::vector<IdleGap> gaps;
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    const Storage& s = all[i];
    if (s.persistent || s.carried || !profile.tensors[s.tensor.index()].alloc_op) continue;
    const std::size_t u = gap_begin(profile, s.uses, phases);
    if (u == s.uses.size() || s.uses[u + 1] <= s.uses[u] + 1) continue;
    gaps.push_back({.storage = i, .use = s.uses[u], .next = s.uses[u + 1], .bytes = s.bytes});
  }
  return gaps;
}

Shortage worst_shortage(const std::vector<std::int64_t>& held, std::uint64_t limit) {
  Shortage worst;
  for (std::uint32_t k = 0; k < held.size(); ++k)
    if (held[k] > static_cast<std::int64_t>(limit + worst.bytes))
      worst = {k, static_cast<std::uint64_t>(held[k]) - limit};
  return worst;
}

void refuse(std::string_view method, const Profile& profile, const Shortage& shortage,
            std::uint64_t budget) {
  throw Error(
      fmt::format("{} cannot train in {}: with all it may move gone, op {} ({}) still "
                  "holds {} too many",
                  method, print_bytes(budget), shortage.op, profile.ops[shortage.op].name,
                  print_bytes(shortage.bytes)));
}

}  // namespace sentinel::plan
