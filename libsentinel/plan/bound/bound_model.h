// What the bound's program is about: the versions of each storage, the idle gaps in which they may
// be away, what has to be somewhere at each op, and time cut into buckets
// (docs/design/bound.md).
#pragma once

#include <cstdint>
#include <vector>

#include "plan/step/storage.h"
#include "sentinel/machine.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

// One idle gap whose contents are wanted afterwards.
struct WantedGap {
  std::uint32_t use = 0, next = 0;     // positions (plan/step/storage.h)
  bool fetched = true;                 // false: its next use may be streamed, wherever it lies
  std::vector<std::uint32_t> replays;  // ops that making it again replays; empty: impossible
};

// The contents of a storage between two writes, or on exclusive tiers between two uses: what is
// away must have been copied out once.
struct Version {
  std::uint32_t storage = 0;
  std::uint32_t made = 0;  // position of the op that wrote it
  bool copied = false;     // lies in slower tiers from the beginning
  std::vector<WantedGap> gaps;
};

// Bytes of an op's operands that it only reads, that it overwrites whole, and that it updates.
struct OperandBytes {
  double read = 0, written = 0, updated = 0;
  double sum() const { return read + written + updated; }
};

struct StepFacts {
  std::vector<Storage> storages;
  std::vector<Version> versions;       // those with gaps
  std::vector<bool> streamed;          // per op: may run without its operands resident
  std::vector<double> retained_bytes;  // per op: its operands, and what is wanted afterwards
  std::vector<OperandBytes> operands;  // per op
  std::vector<std::uint32_t> passing;  // ops with operands larger than the budget, ascending
};

// `recompute`: find what making each gap's contents again would replay, and count as copied what a
// streamed replay may leave in a slower tier. O(uses log n) and, with it, a bounded number of ops
// for each gap.
StepFacts step_facts(const Profile&, const Machine&, std::uint64_t fast_bytes, bool recompute);

// Capacity is enforced at checkpoints: the step is cut into runs of ops, each represented by the op
// that retains most, streamed ones left out. The ops that exceed the budget most are checkpoints
// besides, in whatever number of runs. Interval j lasts from the end of checkpoint j - 1 to
// the end of checkpoint j, the first one from the last checkpoint of the step before; from size()
// on, intervals are of the next step.
class Buckets {
 public:
  // At most `count` of them, and the ops that exceed the budget. Those of a smaller count are among
  // those of a larger one.
  Buckets(const Profile&, const StepFacts&, std::uint32_t count);

  std::uint32_t size() const { return static_cast<std::uint32_t>(checkpoints_.size()); }
  std::uint32_t checkpoint(std::uint32_t j) const { return checkpoints_[j]; }
  double us(std::uint32_t j) const { return us_[j]; }    // of the ops that end in interval j
  std::uint32_t of_start(std::uint32_t position) const;  // the interval in which that op starts
  std::uint32_t of_end(std::uint32_t position) const;    // what follows its end begins here

 private:
  std::uint32_t ops_;
  std::vector<std::uint32_t> checkpoints_;
  std::vector<double> us_;
};

}  // namespace sentinel::plan
