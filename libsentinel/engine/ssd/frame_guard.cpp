// The fault path. Runs on the FaultLoop's thread: allocates nothing, logs nothing, takes only the
// engine's lock, which nobody holds while touching the arena.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/host/stop.h"
#include "engine/ssd/frame_engine.h"

namespace sentinel {
namespace {

constexpr std::uintptr_t kPage = 4096;

}  // namespace

void FrameEngine::on_missing(void* self, const Fault& fault) noexcept {
  auto& engine = *static_cast<FrameEngine*>(self);
  const auto distance = fault.address - engine.arena_;
  const auto index = static_cast<BlockIndex>(distance / kGranule);
  Guard guard(engine.lock_);
  if (distance >= engine.arena_bytes_)  // a frame on its way through the pool
    return engine.look_again(fault);
  if (engine.blocks_[index].state == BlockState::resident) return engine.look_again(fault);
  if (!engine.serve_piece(fault, index, guard)) engine.on_fault(index, guard);
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

void FrameEngine::on_lost(void* self) noexcept {
  static_cast<FrameEngine*>(self)->fail(kClosed, EBADF);
}

// Somebody has resolved it meanwhile, or will once the arena is no more exchanged; unless the
// program has taken the page away, and its threads fault for ever. With the lock.
void FrameEngine::look_again(const Fault& fault) noexcept {
  constexpr std::uint32_t kBetweenLooks = 200, kPatience = 5;
  const auto page = fault.address & ~(kPage - 1);
  unsigned char present = 1;
  if (!frozen_ && ++answered_ % kBetweenLooks == 0 &&
      mincore(reinterpret_cast<void*>(page), kPage, &present) == 0)
    missing_in_turn_ = (present & 1) != 0 ? 0 : missing_in_turn_ + 1;
  if (missing_in_turn_ == kPatience)
    stop_training(
        "this program has given back or moved memory that a tensor has (madvise, mremap), which "
        "the framework frees");
  loop_->wake(fault.address & ~(kGranule - 1), kGranule);
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
      // The kernel goes through the whole arena then, and would be served for ever.
      if (block.live == 0 && locked_bytes() >= arena_bytes_) stop_training(kLocked);
      if (block.queue == QueueId::demand) return;
      if (!frozen_ && demanded_.empty()) {
        if (lacks_frame() && backing_->guard_may_take()) reuse_dead(guard);
        if (block.state != BlockState::empty) return on_fault(index, guard);
        read_no_more(index);
        if (give(index, guard)) return give_ahead(index, guard);
      }
      if (!std::exchange(block.faulted, true)) begin_wait();
      demand(index);
      want_frames(demanded_.size());
  }
}

// What had to leave during the op that asks for it again will have to leave again: it gets the
// piece that it wants alone, if it only reads it. False: that is not so, or not worth it.
bool FrameEngine::serve_piece(const Fault& fault, BlockIndex index, Guard& guard) noexcept {
  const auto& block = blocks_[index];
  if (!pieces_ || block.state != BlockState::absent || frozen_ || counting_) return false;
  if (fault.write) {
    pieces_->drop(index);
    return false;
  }
  const auto now = clock_.load(std::memory_order_relaxed);
  if (block.left != now || block.queue != QueueId::none || block.slot == kZeros) return false;
  const auto piece = Pieces::piece(fault.address);
  const auto again = [&] {  // another thread's fault, or the block has changed meanwhile
    loop_->wake(fault.address & ~std::uint64_t{4095}, 4096);
    return true;
  };
  if (pieces_->mapped(index, piece)) return again();
  const bool worth = pieces_->worth(index, piece, now);
  const auto lacking = pieces_->frames_wanted() - pieces_->frames();
  if (lacking != 0) want_frames(demanded_.size() + lacking, Rank::used);
  if (!worth) return false;
  pieces_->choose(index, piece, [&](BlockIndex other) -> std::int64_t {
    if (other >= blocks_.size()) return -1;
    const auto& next = blocks_[other];
    const bool left = next.state == BlockState::absent && next.left == now;
    return left && next.queue == QueueId::none ? next.slot : -1;
  });
  begin_wait();
  ++counters_.demand_faults;
  guard.unlock();
  int code = pieces_->read();
  guard.lock();
  end_wait();
  if (code == 0 && !pieces_->sound()) code = kOtherBytes;
  if (code != 0) fail("could not read a part of a tensor back", code);
  const auto arrived = pieces_->put();
  counters_.promoted_bytes += arrived * Pieces::kBytes;
  counters_.pieces += arrived;
  return pieces_->mapped(index, piece) || again();
}

// What begins is mostly written from front to back: its next blocks get frames that are free beyond
// need, or the dead's, before somebody has to fault for each.
void FrameEngine::give_ahead(BlockIndex index, Guard& guard) noexcept {
  constexpr BlockIndex kBlocks = 4;
  const auto last = std::min<BlockIndex>(index + kBlocks, blocks_.size() - 1);
  for (auto next = index + 1; next <= last; ++next) {
    const auto& block = blocks_[next];
    const auto waits = [&] {
      return block.state == BlockState::empty && block.live != 0 && !frozen_ && demanded_.empty();
    };
    if (waits() && free_.size() <= room_ahead() / 2) {
      if (dead_.empty() || !backing_->guard_may_take()) break;
      reuse_dead(guard);
    }
    if (!waits() || free_.empty()) break;
    read_no_more(next);
    give(next, guard, false);
  }
  make_room_ahead();
}

// An op that streams through more than fits will want the blocks behind this one next: if it came
// from the one before it, and does not stride.
void FrameEngine::read_ahead(BlockIndex index) noexcept {
  const auto now = clock_.load(std::memory_order_relaxed);
  const auto used = [&](BlockIndex i) { return blocks_[i].used >> 24 == now; };
  if (pieces_ && pieces_->strides(now)) return;
  if (index == 0 || blocks_[index - 1].state == BlockState::absent || !used(index - 1)) return;
  const auto most = std::min<std::uint64_t>(options_.depth, budget_frames_ / 8);
  for (auto next = index + 1; next <= index + most && next < blocks_.size(); ++next) {
    if (blocks_[next].state != BlockState::absent || !used(next)) return;
    if (blocks_[next].queue == QueueId::none) ahead_.push(next);
  }
}

}  // namespace sentinel
