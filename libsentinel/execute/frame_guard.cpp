// The fault path. Runs on the FaultLoop's thread: allocates nothing, logs nothing, takes only the
// engine's lock, which nobody holds while touching the arena.
#include <algorithm>
#include <utility>

#include "execute/frame_engine.h"

namespace sentinel {

void FrameEngine::on_missing(void* self, const Fault& fault) noexcept {
  auto& engine = *static_cast<FrameEngine*>(self);
  const auto distance = fault.address - engine.arena_;
  if (distance >= engine.arena_bytes_) {  // a frame on its way through the pool: look again
    engine.loop_->wake(fault.address & ~(kGranule - 1), kGranule);
    return;
  }
  Guard guard(engine.lock_);
  engine.on_fault(static_cast<BlockIndex>(distance / kGranule), guard);
}

void FrameEngine::on_minor(void* self, const Fault& fault) noexcept {
  auto& engine = *static_cast<FrameEngine*>(self);
  const auto index = static_cast<BlockIndex>((fault.address - engine.arena_) / kGranule);
  Guard guard(engine.lock_);
  if (engine.blocks_[index].state != BlockState::resident) return engine.on_fault(index, guard);
  // With the lock: a block that began to leave meanwhile must not be mapped again.
  if (!engine.count_fault(fault)) {
    const auto begin = fault.address & ~(kGranule - 1);
    engine.loop_->cont(begin, kGranule);
  }
}

void FrameEngine::on_fault(BlockIndex index, Guard& guard) noexcept {
  auto& block = blocks_[index];
  const auto wait_for_bytes = [&] {
    if (std::exchange(block.faulted, true)) return;
    begin_wait();
    ++counters_.demand_faults;
  };
  switch (block.state) {
    case BlockState::resident:
      loop_->wake(arena_ + index * kGranule, kGranule);
      return;
    case BlockState::leaving:
      block.recalled = true;
      wait_for_bytes();
      return;
    case BlockState::arriving:
      wait_for_bytes();
      return;
    case BlockState::absent:
      wait_for_bytes();
      demand(index);
      read_ahead(index);
      return;
    case BlockState::empty:
      if (block.queue == QueueId::demand) return;
      if (!frozen_ && demanded_.empty() && give(index, guard)) return;
      if (!std::exchange(block.faulted, true)) begin_wait();
      demand(index);
      want_frames(demanded_.size());
  }
}

// An op that streams through more than fits will want the blocks behind this one next.
void FrameEngine::read_ahead(BlockIndex index) noexcept {
  const auto ahead = std::min<std::uint64_t>(options_.depth, budget_frames_ / 8);
  for (auto next = index + 1; next <= index + ahead && next < blocks_.size(); ++next) {
    auto& block = blocks_[next];
    if (block.state != BlockState::absent || block.used != blocks_[index].used) return;
    if (block.queue == QueueId::none) prefetches_.push(next);
  }
}

}  // namespace sentinel
