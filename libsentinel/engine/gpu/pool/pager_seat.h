// A pager's seat: what it is told of blocks, and its advice. It only advises (DeepUM, ASPLOS 2023,
// sections 4 and 5.1): it moves nothing, and what an op awaits comes whatever it says. Its blocks
// are granules of the arena.
//
// The engine's lock guards it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/gpu/pool/block.h"
#include "sentinel/paging.h"

namespace sentinel::gpu::pool {

class PagerSeat {
 public:
  explicit PagerSeat(const std::vector<ChunkBlock>& blocks) : blocks_(blocks) {}
  void take(std::unique_ptr<Pager>);
  bool taken() const { return pager_ != nullptr; }

  void kernel(std::uint64_t hash);
  // The block may be a victim from now on, if it is one that may / no longer.
  void came(Index);
  void went(Index);
  bool touched(Index);  // whether the kernel faults on it, unexpected: faulted() is to come
  void faulted(Index index) { pager_->faulted(BlockId(index)); }

  std::optional<Index> prefetch();  // the next to fetch
  // Asked until `may_go` says so of one. What the pager names and may not go is offered to it
  // again.
  template <class MayGo>
  std::optional<Index> victim(bool pressing, MayGo&& may_go);
  bool pre_evicts() const { return pager_->pre_evicts(); }

 private:
  static constexpr int kTries = 64;  // victims that may not go, until the engine chooses itself
  static bool pageable(const ChunkBlock& b) {
    return b.state == State::resident && !b.dead && b.pins == 0;
  }

  const std::vector<ChunkBlock>& blocks_;
  std::unique_ptr<Pager> pager_;  // null: plans decide
  bool in_kernel_ = false;        // of the pager's
};

template <class MayGo>
std::optional<Index> PagerSeat::victim(bool pressing, MayGo&& may_go) {
  std::vector<Index> refused;
  std::optional<Index> victim;
  for (int n = 0; n < kTries && !victim; ++n) {
    const auto block = pager_->victim(pressing);
    if (!block) break;
    const auto index = static_cast<Index>(block->index());
    if (index >= blocks_.size() || !pageable(blocks_[index])) continue;
    if (may_go(blocks_[index]))
      victim = index;
    else
      refused.push_back(index);
  }
  for (const Index index : refused) came(index);
  return victim;
}

}  // namespace sentinel::gpu::pool
