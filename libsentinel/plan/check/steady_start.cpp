// Finds which tensors a steady step expects outside fast memory at its start.
#include "plan/check/steady_start.h"

#include <algorithm>
#include <map>
#include <utility>

#include "plan/step/replay.h"
#include "plan/step/storage.h"

namespace sentinel::plan {

std::vector<TensorId> absent_at_start(const Plan& plan, const Profile& profile) {
  std::map<std::uint32_t, std::pair<std::uint32_t, Direction>> last;  // by tensor: op, direction
  for (const Move& m : plan.moves) {
    if (m.direction == Direction::copy) continue;
    const std::pair now{m.trigger.value, m.direction};  // at one op, the demotion is the later
    auto [at, first] = last.emplace(m.tensor.value, now);
    if (!first) at->second = std::max(at->second, now);
  }
  // In the rest of the step, by an op that overwrites it whole.
  const auto back = [&](const Storage& s, std::uint32_t since) {
    return std::ranges::any_of(s.uses, [&](std::uint32_t use) {
      return use > since && use < profile.ops.size() && !reads(profile, s, use) &&
             std::ranges::none_of(plan.in_place, [&](const InPlace& where) {
               return where.tensor == s.tensor && where.op == OpId(use);
             });
    });
  };
  std::vector<TensorId> absent;
  for (const Storage& s : storages(profile)) {
    const auto found = last.find(s.tensor.value);
    if ((s.persistent || s.carried) && found != last.end() &&
        found->second.second != Direction::promote && !back(s, found->second.first))
      absent.push_back(s.carried.value_or(s.tensor));
  }
  return absent;
}

}  // namespace sentinel::plan
