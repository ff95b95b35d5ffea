// Answers a fault by its block's state: gives zeros, waits for an arrival, or demands a read.
#include "engine/ssd/frame_guard.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/kept_memory.h"
#include "engine/host/stop.h"
#include "engine/io/slow_file.h"

namespace sentinel {
namespace {

constexpr std::uintptr_t kPage = 4096;

}  // namespace

void FrameGuard::begin() noexcept {
  arena_.loop()->set_missing_handler(&FrameGuard::on_missing, this);
  arena_.loop()->set_minor_handler(&FrameGuard::on_minor, this);
  arena_.loop()->set_barred_handler(&FrameGuard::on_barred, this);
  arena_.loop()->set_lost_handler(&FrameGuard::on_lost, this);
}

void FrameGuard::count_with(Engine::CountFault count, void* source) noexcept {
  count_fault_ = nullptr;
  arena_.loop()->set_minor_handler(&FrameGuard::on_minor, this);
  count_source_ = source;
  count_fault_ = count;
}

bool FrameGuard::count_fault(const Fault& fault) noexcept {
  const auto count = count_fault_.load();
  return count != nullptr && count(count_source_, fault);
}

void FrameGuard::on_missing(void* self, const Fault& fault) noexcept {
  auto& guard = *static_cast<FrameGuard*>(self);
  const auto index = guard.arena_.index_of(fault.address);
  EngineLock held(guard.lock_);
  if (!guard.arena_.contains(fault.address))  // a frame on its way through the pool
    return guard.look_again(fault);
  if (guard.blocks_[index].state == BlockState::resident) return guard.look_again(fault);
  if (!guard.serve_piece(fault, index, held)) guard.on_fault(index, fault.tid, held);
}

void FrameGuard::on_minor(void* self, const Fault& fault) noexcept {
  auto& guard = *static_cast<FrameGuard*>(self);
  const auto index = guard.arena_.index_of(fault.address);
  EngineLock held(guard.lock_);
  if (guard.blocks_[index].state != BlockState::resident)
    return guard.on_fault(index, fault.tid, held);
  // With the lock: a block that began to leave meanwhile must not be mapped again.
  if (!guard.count_fault(fault)) {
    const auto begin = fault.address & ~(kGranule - 1);
    guard.arena_.loop()->cont(begin, kGranule);
  }
}

// Without the lock: unbarring makes nothing present. A block that has just arrived, or that was
// counted until now, is unbarred as a whole.
void FrameGuard::on_barred(void* self, const Fault& fault) noexcept {
  auto& guard = *static_cast<FrameGuard*>(self);
  if (guard.count_fault(fault)) return;
  auto* loop = guard.arena_.loop();
  const auto begin = fault.address & ~(kGranule - 1);
  if (loop->unbar(begin, kGranule) != 0) loop->wake(begin, kGranule);
}

void FrameGuard::on_lost(void* self) noexcept {
  static_cast<FrameGuard*>(self)->transfers_.fail(kClosed, EBADF);
}

void FrameGuard::look_again(const Fault& fault) noexcept {
  constexpr std::uint32_t kBetweenLooks = 200, kPatience = 5;
  const auto page = fault.address & ~(kPage - 1);
  unsigned char present = 1;
  if (!blocks_.frozen() && ++answered_ % kBetweenLooks == 0 &&
      mincore(reinterpret_cast<void*>(page), kPage, &present) == 0)
    missing_in_turn_ = (present & 1) != 0 ? 0 : missing_in_turn_ + 1;
  if (missing_in_turn_ == kPatience)
    stop_training(
        "this program has given back or moved memory that a tensor has (madvise, mremap), which "
        "the framework frees");
  arena_.loop()->wake(fault.address & ~(kGranule - 1), kGranule);
}

void FrameGuard::on_fault(BlockIndex index, pid_t thread, EngineLock& guard) noexcept {
  auto& block = blocks_[index];
  bool foreseen = true;
  const auto wait_for_bytes = [&] {
    if (std::exchange(block.faulted, true)) return;
    stalls_.begin_for_bytes();
    foreseen = order_.asked(index);
  };
  switch (block.state) {
    case BlockState::resident:
      arena_.wake(index);
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
      transitions_.demand(index, !use_.in_turn(thread));
      if (!foreseen) read_ahead(index);
      return;
    case BlockState::lost:
      if (block.faulted) return;
      if (remaker_ == nullptr)
        stop_training("a tensor is used that nobody can make again any more");
      wait_for_bytes();
      remaker_->touched(arena_.begin() + std::uint64_t{index} * kGranule);
      return;
    case BlockState::empty:
      on_empty(index, thread, guard);
  }
}

void FrameGuard::on_empty(BlockIndex index, pid_t thread, EngineLock& guard) noexcept {
  auto& block = blocks_[index];
  // The kernel goes through the whole arena then, and would be served for ever.
  if (block.live == 0 && locked_bytes() >= arena_.bytes()) stop_training(kLocked);
  const bool later = !use_.in_turn(thread);
  if (block.queue == QueueId::demand && (later || !block.later)) return;
  if (!block.faulted) order_.asked(index);
  if (!blocks_.frozen() && blocks_.demanded().empty()) {
    if (budget_.lacks_frame() && backings_->guard_may_take()) transitions_.reuse_dead(guard);
    if (block.state != BlockState::empty) return on_fault(index, thread, guard);
    blocks_.read_no_more(index);
    if (transitions_.give(index, guard)) return give_ahead(index, guard);
  }
  if (!std::exchange(block.faulted, true)) stalls_.begin();
  transitions_.demand(index, later);
  victims_.want_frames(victims_.demanded());
}

// What had to leave during the op that asks for it again will have to leave again: it gets the
// piece that it wants alone, if it only reads it. False: that is not so, or not worth it.
bool FrameGuard::serve_piece(const Fault& fault, BlockIndex index, EngineLock& guard) noexcept {
  const auto& block = blocks_[index];
  auto* pieces = budget_.pieces();
  if (!pieces || block.state != BlockState::absent || blocks_.frozen() || counting_) return false;
  if (fault.write) {
    pieces->drop(index);
    return false;
  }
  if (order_.due(block) != StreamOrder::kNever) return false;
  const auto now = use_.op();
  if (block.left != now || block.queue != QueueId::none || block.slot == kZeros) return false;
  const auto piece = Pieces::piece(fault.address);
  const auto again = [&] {  // another thread's fault, or the block has changed meanwhile
    arena_.loop()->wake(fault.address & ~(kPage - 1), kPage);
    return true;
  };
  if (pieces->mapped(index, piece)) return again();
  const bool worth = pieces->worth(index, piece, now);
  const auto lacking = pieces->frames_wanted() - pieces->frames();
  if (lacking != 0) victims_.want_frames(victims_.demanded() + lacking, FrameVictims::Rank::used);
  if (!worth) return false;
  bring_piece(*pieces, index, piece, now, guard);
  return pieces->mapped(index, piece) || again();
}

// With those that are read with it, and the lock dropped meanwhile.
void FrameGuard::bring_piece(Pieces& pieces, BlockIndex index, std::uint32_t piece,
                             std::uint64_t now, EngineLock& guard) noexcept {
  pieces.choose(index, piece, [&](BlockIndex other) -> std::int64_t {
    if (other >= blocks_.size()) return -1;
    const auto& next = blocks_[other];
    const bool left = next.state == BlockState::absent && next.left == now;
    return left && next.queue == QueueId::none ? next.slot : -1;
  });
  stalls_.begin_for_bytes();
  guard.unlock();
  int code = pieces.read();
  guard.lock();
  stalls_.end();
  if (code == 0 && !pieces.sound()) code = kOtherBytes;
  if (code != 0) transfers_.fail("could not read a part of a tensor back", code);
  const auto put = pieces.put();
  order_.asked_for_pieces(put);
  transfers_.promoted_pieces(put, Pieces::kBytes);
}

// What begins is mostly written from front to back: its next blocks get frames that are free beyond
// need, or the dead's, before somebody has to fault for each.
void FrameGuard::give_ahead(BlockIndex index, EngineLock& guard) noexcept {
  constexpr BlockIndex kBlocks = 4;
  const auto last = std::min<BlockIndex>(index + kBlocks, blocks_.size() - 1);
  for (auto next = index + 1; next <= last; ++next) {
    const auto& block = blocks_[next];
    const auto waits = [&] {
      return block.state == BlockState::empty && block.live != 0 && !blocks_.frozen() &&
             blocks_.demanded().empty();
    };
    if (waits() && budget_.free() <= victims_.room_ahead() / 2) {
      if (blocks_.dead().empty() || !backings_->guard_may_take()) break;
      transitions_.reuse_dead(guard);
    }
    if (!waits() || !budget_.has_free()) break;
    blocks_.read_no_more(next);
    order_.asked(next);
    transitions_.give(next, guard, false);
  }
  victims_.make_room_ahead();
}

// An op that streams through more than fits will want the blocks behind this one next: if it came
// from the one before it, and does not stride.
void FrameGuard::read_ahead(BlockIndex index) noexcept {
  const auto now = use_.op();
  const auto used = [&](BlockIndex i) { return FrameUse::op_of(blocks_[i]) == now; };
  const auto* pieces = budget_.pieces();
  if (pieces && pieces->strides(now)) return;
  if (index == 0 || blocks_[index - 1].state == BlockState::absent || !used(index - 1)) return;
  const auto most = std::min<std::uint64_t>(transfers_.depth(), budget_.limit() / 8);
  for (auto next = index + 1; next <= index + most && next < blocks_.size(); ++next) {
    if (blocks_[next].state != BlockState::absent || !used(next)) return;
    if (blocks_[next].queue != QueueId::none) continue;
    order_.asked(next);
    blocks_.ahead().push(next);
  }
}

}  // namespace sentinel
