// The sizes of what the running step allocates, held against a profiled step of the same ops.
// Batches that are padded to their longest sample make such steps: the ops are the same, most sizes
// are not.
//
// Where an op makes as many tensors as profiled, its nth one plays the role of the profiled nth,
// whatever its size. Where it makes fewer or more, nothing is known of that op.
//
// Guarded by the session's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/step/matcher.h"
#include "sentinel/profile.h"

namespace sentinel {

class StepSizes {
 public:
  void begin_step() { made_.clear(); }
  // By the op that began last; 0: before the first.
  void allocated(std::uint32_t op, std::uint64_t bytes) {
    if (made_.size() < kMost) made_.emplace_back(op, bytes);
  }

  struct Difference {
    bool follows = false;  // but for a twentieth of its bytes, its tensors are known by their turn
    bool larger = false;   // more than a twentieth of its bytes is of tensors larger than profiled
    std::vector<std::uint64_t> bytes;  // per tensor of the profile: the larger size of the two
  };
  // The running step has all ops of that one, and no other.
  Difference against(const StepMatcher&, const Profile&) const;

 private:
  static constexpr std::size_t kMost = 1 << 20;  // of a step that never ends

  std::vector<std::pair<std::uint32_t, std::uint64_t>> made_;  // op, bytes
};

}  // namespace sentinel
