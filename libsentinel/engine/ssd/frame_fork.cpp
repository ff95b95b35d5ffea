// fork(): a child finds every tensor as it was, also those that the parent had moved out, or ends
// with an error. It never reads anything else, whatever descriptors it closes.
//
// Resident blocks are the kernel's business (copy on write). For absent ones the child opens a
// guard of its own, whose descriptors no other thread of the child has, and copies them from its
// mapping of the slow tier's files, whose slots the parent keeps until the child has gone
// (ChildLife). Nothing is in flight across the fork, and no block is shared memory then.
//
// A child that the C library knows nothing of (clone, _Fork) runs none of these handlers: once a
// block may be absent, and while blocks are shared memory, such a child has no arena at all, and a
// touch of it is SIGSEGV.
#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "alloc/ranges.h"
#include "engine/ssd/frame_engine.h"

namespace sentinel {

void FrameEngine::before_fork() noexcept {
  lock_.lock();
  Guard guard(lock_, std::adopt_lock);
  wait_until_settled(guard);
  guard.release();
  int code = counting_ ? -EBUSY : 0;
  if (code == 0 && slow_ && !child_) code = slow_->before_fork();
  arena_shown_ = code == 0;
  if (!arena_shown_)
    tell_of_unserved(-code);
  else if (slow_)
    show_arena(true);
}

void FrameEngine::after_fork_in_parent() noexcept {
  if (slow_ && arena_shown_) {
    show_arena(false);
    if (!child_) slow_->after_fork_in_parent();
  }
  thaw();
  lock_.unlock();
}

// The child's copy of the arena raises no faults any more: absent blocks would read as zeros. The
// parent's threads do not exist here and their objects are left alone.
void FrameEngine::after_fork_in_child() noexcept {
  loop_->abandon_in_child();
  bool absent = false;
  for (const auto& block : blocks_) absent |= block.slot >= 0;
  if (slow_ && arena_shown_) {
    if (!std::exchange(child_, true)) slow_->after_fork_in_child();
    if (const int code = absent ? serve_child() : 0; code != 0) refuse_child(-code);
    show_arena(false);
  }
  child_ = true;
  lock_.unlock();
}

// What a fork copies of the arena: all of it, or nothing.
void FrameEngine::show_arena(bool shown) noexcept {
  madvise(reinterpret_cast<void*>(arena_), arena_bytes_, shown ? MADV_DOFORK : MADV_DONTFORK);
}

void FrameEngine::tell_of_unserved(int error) noexcept {
  if (std::exchange(told_of_unserved_, true)) return;
  fprintf(stderr,
          "sentinel: a child is forked that cannot be given its parent's tensors (%s): it may "
          "execute another program, and ends where it touches a tensor\n",
          strerror(error));
}

int FrameEngine::serve_child() noexcept {
  try {
    [[maybe_unused]] auto* parents = loop_.release();
    loop_ = FaultLoop::open({.keeper = false});
    loop_->set_missing_handler(&FrameEngine::on_missing_in_child, this);
    child_buffer_ = reserve_anonymous(kGranule, kGranule);
  } catch (const std::exception&) {
    return -EPERM;
  }
  const int code = loop_->register_range(arena_, arena_bytes_, true, false);
  return code == 0 ? loop_->hide_descriptors() : code;
}

// Without a guard the arena may not be touched at all.
void FrameEngine::refuse_child(int error) noexcept {
  mprotect(reinterpret_cast<void*>(arena_), arena_bytes_, PROT_NONE);
  tell_of_unserved(error);
}

// With the lock, so that a block is placed whole or not at all when the child forks in turn.
void FrameEngine::on_missing_in_child(void* self, const Fault& fault) noexcept {
  auto& engine = *static_cast<FrameEngine*>(self);
  const auto index = static_cast<BlockIndex>((fault.address - engine.arena_) / kGranule);
  const Guard guard(engine.lock_);
  if (fault.address - engine.arena_ >= engine.arena_bytes_) return engine.look_again(fault);
  if (engine.blocks_[index].slot < 0) {  // nothing was there: one page, as the kernel would give
    engine.loop_->zero(fault.address & ~std::uint64_t{4095}, 4096);
    return;
  }
  if (const int error = engine.place_in_child(index); error != 0)
    engine.fail("could not give a child process its parent's tensor", error);
}

// By way of a buffer: the file might be written to between the comparison and the copy.
int FrameEngine::place_in_child(BlockIndex index) noexcept {
  const auto slot = blocks_[index].slot;
  const void* copy = slow_->child_copy(slot);
  if (copy == nullptr) return kOtherEnd;
  auto* buffer = reinterpret_cast<void*>(child_buffer_);
  std::memcpy(buffer, copy, kGranule);
  slow_->let_go(copy);
  if (!slow_->child_has_end(slot)) return kOtherEnd;
  if (!slow_->checksums().match(slot, 0, buffer, kGranule)) return kOtherBytes;
  return -loop_->copy(arena_ + index * kGranule, child_buffer_, kGranule);
}

}  // namespace sentinel
