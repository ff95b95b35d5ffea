#include "plan/replay_cost.h"

#include <algorithm>

#include "sentinel/analysis.h"

namespace sentinel::plan {

ReplayCost::ReplayCost(const Profile& profile)
    : profile_(profile), replay_(profile), last_use_(profile.tensors.size(), 0) {
  for (std::uint32_t k = 0; k < profile.ops.size(); ++k)
    for (const auto* list : {&profile.ops[k].in, &profile.ops[k].out})
      for (TensorId t : *list) last_use_[t.index()] = k;
  for (const Lifetime& life : lifetimes(profile)) persistent_.push_back(life.persistent);
}

// Neither dead nor overwritten at k; what is so now is so at every later op.
bool ReplayCost::available(TensorId t, OpId reader, OpId k) const {
  return replay_.version(t, reader) == replay_.version(t, k) &&
         (persistent_[t.index()] || last_use_[t.index()] >= k.value);
}

std::vector<std::uint32_t> ReplayCost::making(TensorId tensor, OpId k) const {
  const auto maker = replay_.maker(tensor, k);
  if (!maker || !replay_.possible(*maker)) return {};
  std::vector<std::uint32_t> found{maker->value};
  for (std::size_t next = 0; next < found.size() && found.size() < kMost; ++next) {
    const OpId op(found[next]);
    for (TensorId t : profile_.ops[op.index()].in) {
      if (available(t, op, k)) continue;
      const auto before = replay_.maker(t, op);
      if (!before || !replay_.possible(*before)) return {};
      if (std::ranges::find(found, before->value) == found.end()) found.push_back(before->value);
    }
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace sentinel::plan
