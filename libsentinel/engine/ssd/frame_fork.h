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
//
// The engine's lock is held from before() until the others have returned. The child's guard takes
// it for each fault.
#pragma once

#include <cstdint>
#include <mutex>

#include "engine/frames/guarded_arena.h"
#include "engine/ssd/blocks.h"
#include "engine/ssd/frame_guard.h"
#include "engine/ssd/frame_transfers.h"

namespace sentinel {

class FrameFork {
 public:
  FrameFork(std::mutex& lock, GuardedArena& arena, FrameBlocks& blocks, FrameTransfers& transfers,
            FrameGuard& guard)
      : lock_(lock), arena_(arena), blocks_(blocks), transfers_(transfers), guard_(guard) {}

  void before(bool counting) noexcept;  // once nothing is in flight
  void after_in_parent() noexcept;
  void after_in_child() noexcept;
  bool is_child() const noexcept { return child_; }  // where nothing moves

 private:
  void tell_of_unserved(int error) noexcept;
  int serve_child() noexcept;
  void refuse_child(int error) noexcept;
  static void on_missing_in_child(void* self, const Fault&) noexcept;
  int place_in_child(BlockIndex) noexcept;

  std::mutex& lock_;
  GuardedArena& arena_;
  FrameBlocks& blocks_;
  FrameTransfers& transfers_;
  FrameGuard& guard_;
  bool child_ = false;
  bool arena_shown_ = true;  // to the child that is being forked
  bool told_of_unserved_ = false;
  std::uintptr_t child_buffer_ = 0;  // in a child: one granule
};

}  // namespace sentinel
