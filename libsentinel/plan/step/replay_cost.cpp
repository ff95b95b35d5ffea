// Collects the ops that any legal way to make a tensor again has to replay.
#include "plan/step/replay_cost.h"

#include <algorithm>

namespace sentinel::plan {

ReplayCost::ReplayCost(const Profile& profile)
    : profile_(profile), replay_(profile), lives_(lifetimes(profile)) {}

// Neither dead nor overwritten at k; what is so then is so at every later op.
bool ReplayCost::available(TensorId t, OpId reader, OpId k) const {
  const Lifetime& life = lives_[t.index()];
  return replay_.version(t, reader) == replay_.version(t, k) &&
         (life.persistent || k <= life.last_op);
}

std::vector<std::uint32_t> ReplayCost::making(TensorId tensor, OpId k) const {
  const auto maker = replay_.maker(tensor, k);
  if (!maker || !replay_.possible(*maker) || replay_.persistent(tensor)) return {};
  std::vector<std::uint32_t> found{maker->value};
  for (std::size_t next = 0; next < found.size() && found.size() < kMost; ++next) {
    const OpId op(found[next]);
    for (TensorId t : profile_.ops[op.index()].in) {
      if (replay_.own_statistic(t, op) || available(t, op, k)) continue;
      const auto before = replay_.maker(t, op);
      if (!before || !replay_.possible(*before)) return {};
      if (std::ranges::find(found, before->value) == found.end()) found.push_back(before->value);
    }
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace sentinel::plan
