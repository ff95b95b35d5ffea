// What making a tensor's contents again costs at least: the ops that any legal way replays.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/step/replay.h"
#include "sentinel/analysis.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

class ReplayCost {
 public:
  explicit ReplayCost(const Profile&);

  bool possible(OpId op) const { return replay_.possible(op); }

  // Ops that every legal way to have the tensor's contents of op k again, at k or later, replays in
  // a row (before one and the same op): its maker, and the makers of inputs that are dead or
  // overwritten by then. Sorted; empty where there is no legal way. At most kMost are looked at: a
  // part of them all where there are more.
  std::vector<std::uint32_t> making(TensorId, OpId k) const;
  static constexpr std::size_t kMost = 64;

 private:
  bool available(TensorId, OpId reader, OpId k) const;

  const Profile& profile_;
  Replay replay_;
  std::vector<Lifetime> lives_;
};

}  // namespace sentinel::plan
