// Fast memory as pools of equal slots, one pool a size class, and what leaves a pool when it is
// full: SwapAdvisor's memory allocation and swap planner.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/gaps/decisions.h"
#include "plan/step/storage.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

struct Pools {
  std::vector<std::uint32_t> of_size;  // per distinct size: its class
  std::vector<std::uint64_t> bytes;    // per class: of one slot
  std::vector<std::uint32_t> slots;    // per class
};

class PoolReplay {
 public:
  // `gaps` as idle_gaps() gives them.
  PoolReplay(const Profile&, const std::vector<Storage>&, const std::vector<IdleGap>& gaps,
             std::uint64_t granule_bytes);

  const std::vector<std::uint64_t>& sizes() const { return sizes_; }  // distinct, ascending

  // Per class, at the worst op: how many of its slots an op uses at once, how many are alive.
  std::vector<std::uint32_t> used(const Pools&) const;
  std::vector<std::uint32_t> alive(const Pools&) const;

  // Which gaps are spent outside, in the steady state: an op that needs a slot of a full pool puts
  // out the tensor of the farthest next use. Every op's own slots must exist.
  std::vector<bool> evictions(const Pools&) const;

 private:
  struct Operand {
    std::uint32_t storage = 0;
    std::uint32_t gap = UINT32_MAX;  // that begins with this use; none: dead, or used at once again
    std::uint32_t wait = 0;          // ops until the next use; UINT32_MAX: none
    bool last = false;               // dies after this op
  };
  struct Resident;

  std::uint32_t pool(const Pools& pools, std::uint32_t storage) const {
    return pools.of_size[size_of_[storage]];
  }

  std::vector<std::uint64_t> sizes_;
  std::vector<std::uint32_t> size_of_;            // per storage
  std::vector<std::vector<Operand>> operands_;    // per op
  std::vector<std::vector<std::uint32_t>> dies_;  // per op: those that it does not use
  std::vector<std::uint32_t> from_start_;         // alive when a step begins
  std::size_t gaps_ = 0;
};

}  // namespace sentinel::plan
