// The operands of each op of a job, the pages it opens, and the storages that end with it. Made
// once from the profile; it knows nothing of where a storage lies.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/step/openings.h"
#include "sentinel/machine.h"
#include "sentinel/profile.h"
#include "sim/job/residence.h"

namespace sentinel::sim {

struct Operand {
  StorageId storage;
  bool read, written;
  bool named;  // by the op; otherwise it is only there (what exists from the step's start) or
               // counted
};

class OpUses {
 public:
  OpUses(const Profile&, const std::vector<plan::Storage>&);

  const std::vector<Operand>& of(OpId op) const { return uses_[op.index()]; }
  const std::vector<StorageId>& ended_by(OpId op) const { return ends_[op.index()]; }  // freed then

  double bytes(OpId, const Operand&) const;  // of the pages that one run of the op opens
  // The cost of that use in a byte-addressable slow tier, beyond its cost in fast memory.
  double in_place_us(OpId, const Operand&, const Machine&, std::uint32_t tier) const;

 private:
  plan::Openings::Pages pages(OpId, const Operand&) const;

  plan::Openings openings_;
  std::vector<std::vector<StorageId>> ends_;  // per op
  std::vector<std::vector<Operand>> uses_;    // per op
};

}  // namespace sentinel::sim
