// Finds the place in the profiled step at which the running one is; an allocation is recognised by
// (op, ordinal, size), or in sequence by op and ordinal alone where its size differs. A wrong guess
// costs time only: placements and moves are hints.
//
// Where ops come one after the other, the same op follows. After a divergence the sequence of the
// last few ops is looked for in the profile, so that the matcher re-synchronises instead of
// drifting. Where ops run at the same time, in an order of their own in each step, an op is the nth
// of its name.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "capture/recorder.h"
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

  // An op that runs: which one it is of the profiled step's, the next of its allocations, and how
  // many it has made.
  struct Cursor {
    std::uint32_t position = kLost, allocation = 0, made = 0;
  };
  struct Expected {
    std::uint64_t bytes;
    std::uint32_t tensor;
  };

  explicit StepMatcher(const Profile&, OpOrder = OpOrder::sequence);

  void begin_step();
  // Before the first op.
  Cursor prelude() const { return place(0); }
  // The place of the op that begins; its position may be kLost.
  Cursor op(std::uint64_t name);
  // In any order. Goes on where another kind of step has come so far; the place of the op of this
  // name that began last.
  Cursor take_over(const StepMatcher& from, std::uint64_t name);
  // The tensor that the op at this place allocates, or LiveTensor::kUnplanned.
  std::uint32_t allocation(Cursor&, std::uint64_t bytes) const;

  // Whether an op of the profiled step allocates so: an allocation_event().
  bool allocates(std::uint64_t event) const { return by_event_.contains(event); }
  // In any order. Notes an allocation of the step that runs.
  void allocated(std::uint64_t event, std::uint64_t bytes);
  // In any order. Whether the step so far allocates what the profiled one does, but for a twentieth
  // of the larger one's bytes: which op reuses another's memory depends on their order.
  bool resembles() const;

  // What the op makes in the profiled step, in its order.
  std::span<const Expected> allocations(std::uint32_t position) const;

  // In sequence. Ops that have followed one another as profiled, up to this one.
  std::uint32_t followed() const { return followed_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(ops_.size()); }
  // In sequence. Signature of the profiled step before op `position` began; 0 behind the end.
  std::uint64_t prefix(std::uint32_t position) const;
  // In sequence. The same of its ops alone, whatever they allocate; with size(), of all of them.
  std::uint64_t ops_before(std::uint32_t position) const;
  std::uint64_t signature() const { return signature_; }
  // In sequence. Goes to `position` as though the step had been followed so far.
  Cursor jump(std::uint32_t position);

 private:
  static constexpr std::size_t kGram = 4;

  Cursor place(std::uint32_t position) const;
  std::uint32_t in_sequence(std::uint64_t name);
  std::uint32_t in_any_order(std::uint64_t name);
  std::uint32_t resume() const;
  std::uint32_t find(const Cursor&, std::uint64_t bytes) const;

  OpOrder order_;
  std::vector<std::uint64_t> ops_;               // name hashes
  std::vector<std::uint64_t> prefixes_;          // per op
  std::vector<std::uint64_t> ops_before_;        // per op, and one past the end
  std::vector<std::uint32_t> first_allocation_;  // per op, and one past the end
  std::vector<Expected> allocations_;
  struct Alike {
    std::uint32_t expected = 0, seen = 0;  // in a step
    std::uint64_t bytes = 0;               // of each
  };
  std::unordered_map<std::uint64_t, Alike> by_event_;
  // Of a step's allocations: profiled, those so far, and of these those that are as profiled.
  std::uint64_t expected_bytes_ = 0, seen_bytes_ = 0, alike_bytes_ = 0;
  // Of the ops up to and with each of these, which ascend.
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> grams_;
  struct Namesakes {
    std::vector<std::uint32_t> positions;
    std::size_t seen = 0;  // in this step
  };
  std::unordered_map<std::uint64_t, Namesakes> by_name_;  // in any order
  std::uint64_t signature_ = 0;

  std::uint32_t next_ = 0, followed_ = 0;  // in sequence
  std::uint64_t recent_[kGram] = {};
};

}  // namespace sentinel
