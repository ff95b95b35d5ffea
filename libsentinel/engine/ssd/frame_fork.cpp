// Settles all transfers before fork(), and serves the child's faults from the parent's file.
#include "engine/ssd/frame_fork.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "alloc/ranges.h"
#include "engine/io/slow_file.h"

namespace sentinel {
namespace {

// And nowhere else.
bool is_in_file(const FrameBlock& block) {
  return block.state == BlockState::absent && block.slot >= 0;
}

}  // namespace

void FrameFork::before(bool counting) noexcept {
  int code = counting || blocks_.lost() != 0 ? -EBUSY : 0;  // a child cannot make them again
  if (code == 0 && transfers_.is_open() && !child_) {
    transfers_.release_copies(blocks_);  // the child would hold their slots as long as it lives
    code = transfers_.file().before_fork();
  }
  arena_shown_ = code == 0;
  if (!arena_shown_)
    tell_of_unserved(-code);
  else if (transfers_.is_open())
    arena_.show_to_child(true);
}

void FrameFork::after_in_parent() noexcept {
  if (!transfers_.is_open() || !arena_shown_) return;
  arena_.show_to_child(false);
  if (!child_) transfers_.file().after_fork_in_parent();
}

// The child's copy of the arena raises no faults any more: absent blocks would read as zeros. The
// parent's threads do not exist here and their objects are left alone.
void FrameFork::after_in_child() noexcept {
  arena_.loop()->abandon_in_child();
  bool absent = false;
  for (const auto& block : blocks_) absent |= is_in_file(block);
  if (transfers_.is_open() && arena_shown_) {
    if (!std::exchange(child_, true)) transfers_.file().after_fork_in_child();
    if (const int code = absent ? serve_child() : 0; code != 0) refuse_child(-code);
    arena_.show_to_child(false);
  }
  child_ = true;
}

void FrameFork::tell_of_unserved(int error) noexcept {
  if (std::exchange(told_of_unserved_, true)) return;
  fprintf(stderr,
          "sentinel: a child is forked that cannot be given its parent's tensors (%s): it may "
          "execute another program, and ends where it touches a tensor\n",
          strerror(error));
}

int FrameFork::serve_child() noexcept {
  try {
    arena_.open_loop_in_child(&FrameFork::on_missing_in_child, this);
    child_buffer_ = reserve_anonymous(kGranule, kGranule);
  } catch (const std::exception&) {
    return -EPERM;
  }
  const int code = arena_.guard(false);
  return code == 0 ? arena_.loop()->hide_descriptors() : code;
}

// Without a guard the arena may not be touched at all.
void FrameFork::refuse_child(int error) noexcept {
  arena_.close_to_child();
  tell_of_unserved(error);
}

// With the lock, so that a block is placed whole or not at all when the child forks in turn.
void FrameFork::on_missing_in_child(void* self, const Fault& fault) noexcept {
  auto& fork = *static_cast<FrameFork*>(self);
  const auto index = fork.arena_.index_of(fault.address);
  const EngineLock guard(fork.lock_);
  if (!fork.arena_.contains(fault.address)) return fork.guard_.look_again(fault);
  if (!is_in_file(fork.blocks_[index])) {  // nothing was there: one page, as the kernel would give
    fork.arena_.loop()->zero(fault.address & ~std::uint64_t{4095}, 4096);
    return;
  }
  if (const int error = fork.place_in_child(index); error != 0)
    fork.transfers_.fail("could not give a child process its parent's tensor", error);
}

// By way of a buffer: the file might be written to between the comparison and the copy.
int FrameFork::place_in_child(BlockIndex index) noexcept {
  const auto& file = transfers_.file();
  const auto slot = blocks_[index].slot;
  const void* copy = file.child_copy(slot);
  if (copy == nullptr) return kOtherEnd;
  auto* buffer = reinterpret_cast<void*>(child_buffer_);
  std::memcpy(buffer, copy, kGranule);
  file.let_go(copy);
  if (!file.child_has_end(slot)) return kOtherEnd;
  if (!file.checksums().match(slot, 0, buffer, kGranule)) return kOtherBytes;
  return -arena_.loop()->copy(arena_.address(index), child_buffer_, kGranule);
}

}  // namespace sentinel
