// The kinds of frames that an engine has for its arena: those for training, those for counting, and
// the one in use. It moves no block from one kind to the other.
//
// Invariant: once opened, one kind is in use. It changes while nothing moves and no block is
// resident in both; in_use() needs no lock until then.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/kept_memory.h"
#include "engine/frames/backing.h"
#include "engine/frames/guarded_arena.h"

namespace sentinel {

class FrameBackings {
 public:
  explicit FrameBackings(GuardedArena& arena) : arena_(arena) {}

  // Once the arena's loop has its handlers, for this registers the pool. `move`: frames are moved
  // where the kernel can, else they are copied. Frames of two nodes (`memory`) have to be moved, or
  // Error is thrown.
  void open(bool move, const std::optional<FrameMemory>& memory = {});

  Backing* operator->() const { return in_use_; }
  Backing& pool() const { return *pool_; }           // for training
  SharedFrames& shared() const { return *shared_; }  // from make_shared() on

  int make_shared() noexcept;  // 0 or a negative errno; once is enough
  void use_shared() noexcept { in_use_ = shared_.get(); }
  void use_pool() noexcept { in_use_ = pool_.get(); }
  void end_shared() noexcept { shared_.reset(); }

 private:
  GuardedArena& arena_;
  std::unique_ptr<SharedFrames> shared_;   // while counting
  std::uint64_t pinned_ = pinned_bytes();  // before there was a tensor
  std::unique_ptr<Backing> pool_;
  Backing* in_use_ = nullptr;
};

}  // namespace sentinel
