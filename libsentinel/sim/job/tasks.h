// The tasks of the op under way: the replays that come before it, then the op itself. It is the
// order and the operands of each; it moves nothing and knows no times.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "sentinel/plan.h"
#include "sim/job/op_uses.h"
#include "sim/job/residence.h"

namespace sentinel::sim {

// An op of the profile, or a replay of one.
struct Task {
  OpId op;
  bool replay = false;
  std::vector<Operand> operands;
  std::vector<StorageId> drop;  // replayed outputs that nothing reads after this one
  // Replayed outputs that exist in a later version already: what begins with this task, and what
  // nothing reads after it. Where granules are frames, all replayed outputs.
  std::uint64_t scratch_bytes = 0, scratch_ends = 0;
  std::uint64_t copied_bytes = 0;  // replayed outputs that are copied from there to their places
};

class Tasks {
 public:
  Tasks(const Profile& profile, const Residence& residence, const OpUses& uses,
        std::uint64_t granule_bytes)
      : profile_(profile), residence_(residence), uses_(uses), granule_bytes_(granule_bytes) {}

  // By where the tensors are now. Throws Error where a replay reads what is gone.
  void plan(OpId, std::span<const Recompute> replays);

  const Task& current() const { return tasks_[at_]; }
  bool next() { return ++at_ < tasks_.size(); }  // false after the op itself

 private:
  void plan_replays(OpId before, std::span<const Recompute>);
  void plan_apart(OpId before, std::span<const Recompute>);
  void plan_apart(OpId before, const Recompute&, std::set<StorageId>& made,
                  std::map<StorageId, std::size_t>& last);

  const Profile& profile_;
  const Residence& residence_;
  const OpUses& uses_;
  std::uint64_t granule_bytes_;
  std::vector<Task> tasks_;
  std::size_t at_ = 0;
};

}  // namespace sentinel::sim
