// Finds the place in the profiled step at which the running one is: the same op follows,
// an allocation is recognised by (op, ordinal, size). After a divergence it looks for the sequence
// of the last few ops in the profile and goes on there, so that it re-synchronises instead of
// drifting. A wrong guess costs time only: placements and moves are hints. Not thread-safe.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "sentinel/profile.h"

namespace sentinel {

// Name hashes by pointer: equal pointers mean equal names.
class Names {
 public:
  std::uint64_t hash(const char* name);

 private:
  std::unordered_map<const char*, std::uint64_t> by_pointer_;
};

class StepMatcher {
 public:
  static constexpr std::uint32_t kLost = ~0u;

  explicit StepMatcher(const Profile&);

  void begin_step();
  // The position of the op that begins, or kLost.
  std::uint32_t op(std::uint64_t name);
  // The tensor that is being allocated, or LiveTensor::kUnplanned.
  std::uint32_t allocation(std::uint64_t bytes);

  std::uint32_t position() const { return position_; }
  // Ops that have followed one another as profiled, up to this one.
  std::uint32_t followed() const { return followed_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(ops_.size()); }
  // Hash of the profiled step's events before op `position` began; 0 behind the end.
  std::uint64_t prefix(std::uint32_t position) const;
  std::uint64_t signature() const { return signature_; }
  // Goes to `position` as though the step had been followed so far.
  void jump(std::uint32_t position);

 private:
  struct Expected {
    std::uint64_t bytes;
    std::uint32_t tensor;
  };
  static constexpr std::size_t kGram = 4;

  std::uint32_t resume() const;

  std::vector<std::uint64_t> ops_;               // name hashes
  std::vector<std::uint64_t> prefixes_;          // per op
  std::vector<std::uint32_t> first_allocation_;  // per op, and one past the end
  std::vector<Expected> allocations_;
  std::unordered_multimap<std::uint64_t, std::uint32_t>
      grams_;  // of the ops up to and with that one
  std::uint64_t signature_ = 0;

  std::uint32_t position_ = kLost, next_ = 0, cursor_ = 0, followed_ = 0;
  std::uint64_t recent_[kGram] = {};
};

}  // namespace sentinel
