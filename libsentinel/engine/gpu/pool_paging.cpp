// Under a pager: what has to leave, what leaves ahead of need and what is fetched ahead is its
// choice (DeepUM, ASPLOS 2023, sections 4 and 5.1). Its blocks are granules of the arena. It only
// advises: what it may not have, the op's own say, it is not given, and what an op awaits comes
// whatever it says.
#include <algorithm>
#include <utility>
#include <vector>

#include "engine/gpu/pool_engine.h"

namespace sentinel::gpu {
namespace {

constexpr int kTries = 64;  // victims that may not go, until the engine chooses itself

}  // namespace

void PoolEngine::page(std::unique_ptr<Pager> pager) {
  const Guard guard(lock_);
  pager_ = std::move(pager);
  in_kernel_ = false;
  for (const Index index : by_use_) came(index);
}

bool PoolEngine::pageable(const Block& b) const {
  return b.state == State::resident && !b.dead && b.stays == 0;
}

// It may be a victim from now on, or no longer.
void PoolEngine::came(Index index) {
  if (pager_ && pageable(blocks_[index])) pager_->arrived(BlockId(index));
}

void PoolEngine::went(Index index) {
  if (pager_) pager_->left(BlockId(index));
}

// A fault makes all commands worthless that were not begun: the pager gives them again.
void PoolEngine::touched(Index index) {
  if (!pager_ || !in_kernel_ || blocks_[index].live == 0) return;
  const BlockId block(index);
  pager_->touched(block);
  if (blocks_[index].state != State::absent || pager_->expected(block)) return;
  for (const Index queued : std::exchange(queued_, {})) {
    Block& b = blocks_[queued];
    if (std::exchange(b.queued, false) && b.state == State::absent) store_->withdraw(b.lies);
  }
  pager_->faulted(block);
}

void PoolEngine::take_commands() {
  struct View final : BlockView {
    explicit View(const std::vector<Block>& b) : blocks(b) {}
    bool present(BlockId id) const override {
      if (id.index() >= blocks.size()) return true;
      const State state = blocks[id.index()].state;
      return state != State::absent && state != State::leaving && state != State::going;
    }
    const std::vector<Block>& blocks;
  };
  const View view(blocks_);
  for (std::size_t n = 0; n < kPagerCommands && queued_.size() < kPagerCommands; ++n) {
    const auto next = pager_->prefetch(view);
    if (!next) return;
    const auto index = static_cast<Index>(next->index());
    if (index < blocks_.size() && blocks_[index].live > 0) ask_for(index);
  }
}

// What the pager names and may not go is offered to it again.
std::optional<PoolEngine::Index> PoolEngine::paged_victim(bool pressing) {
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

// So that fetches ahead of need do not wait for what leaves.
void PoolEngine::make_room_ahead(Guard& guard) {
  if (!pager_->pre_evicts()) return;
  const auto ahead = [this] { return std::min(kPagerFreeBlocks, std::min(budget_, device_) / 8); };
  const auto is_short = [&] {
    const auto most = std::min(budget_, device_);
    return free_.size() + dead_.size() + under_way_ + (most - std::min(most, chunks_)) < ahead();
  };
  if (is_short()) have_places(ahead(), guard);
  Together together;
  while (is_short()) {
    auto* place = try_place();
    if (place == nullptr) break;
    const auto victim = paged_victim(false);
    if (!victim) {
      store_->give(place);
      break;
    }
    leave(*victim, place, together);
  }
  see_off(together);
}

}  // namespace sentinel::gpu
