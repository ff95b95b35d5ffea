// Tells a pager of kernels and blocks, and turns its advice into indices.
#include "engine/gpu/pool/pager_seat.h"

#include <utility>

namespace sentinel::gpu::pool {

void PagerSeat::take(std::unique_ptr<Pager> pager) {
  pager_ = std::move(pager);
  in_kernel_ = false;
}

void PagerSeat::kernel(std::uint64_t hash) {
  if (std::exchange(in_kernel_, true)) pager_->kernel_end();
  pager_->kernel_start(hash);
}

void PagerSeat::came(Index index) {
  if (pager_ && pageable(blocks_[index])) pager_->arrived(BlockId(index));
}

void PagerSeat::went(Index index) {
  if (pager_) pager_->left(BlockId(index));
}

bool PagerSeat::touched(Index index) {
  if (!pager_ || !in_kernel_ || blocks_[index].live == 0) return false;
  const BlockId block(index);
  pager_->touched(block);
  return blocks_[index].state == State::absent && !pager_->expected(block);
}

std::optional<Index> PagerSeat::prefetch() {
  struct View final : BlockView {
    explicit View(const std::vector<ChunkBlock>& b) : blocks(b) {}
    bool present(BlockId id) const override {
      if (id.index() >= blocks.size()) return true;
      const State state = blocks[id.index()].state;
      return state != State::absent && state != State::leaving && state != State::going;
    }
    const std::vector<ChunkBlock>& blocks;
  };
  const auto next = pager_->prefetch(View(blocks_));
  return next ? std::optional(static_cast<Index>(next->index())) : std::nullopt;
}

}  // namespace sentinel::gpu::pool
