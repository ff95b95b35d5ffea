// Lists the gaps between consecutive uses of each storage, around the step's end too.
#include "plan/gaps/idle_gaps.h"

#include <algorithm>

namespace sentinel::plan {

std::vector<IdleGap> idle_gaps(const Profile& profile, const std::vector<Storage>& storages,
                               const Machine& machine) {
  const auto ops = static_cast<std::uint32_t>(profile.ops.size());
  std::vector<IdleGap> gaps;
  for (std::uint32_t i = 0; i < storages.size(); ++i) {
    const Storage& s = storages[i];
    if (s.uses.empty()) continue;
    bool dirty = !s.persistent;
    // A persistent one comes to its first gap with what it wrote since its last one.
    if (s.persistent)
      dirty = std::ranges::any_of(s.uses, [&](auto u) { return writes(profile, s, u); });
    const auto add = [&](std::uint32_t use, std::uint32_t next, bool needed) {
      if (next < use + 2) return;
      gaps.push_back({i, use, next, s.bytes, dirty || machine.exclusive, needed});
      dirty = false;
    };
    for (std::size_t u = 0; u < s.uses.size(); ++u) {
      if (u > 0) dirty |= writes(profile, s, s.uses[u]);
      if (u + 1 < s.uses.size()) add(s.uses[u], s.uses[u + 1], reads(profile, s, s.uses[u + 1]));
    }
    if (s.persistent)
      add(s.uses.back(), s.uses.front() + ops, reads(profile, s, s.uses.front()));
    else
      add(s.uses.back(), s.last + 1, false);
  }
  return gaps;
}

}  // namespace sentinel::plan
