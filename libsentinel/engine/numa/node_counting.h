// The switch between moving and counting. Counting through page faults needs shared memory, moving
// private memory: the arena's mapping is exchanged at the same addresses while other threads may
// use it, as in frame_counting.cpp. Here nothing is absent, so whoever touches a page that is under
// way waits for it and no longer.
//
//          to_shared()            to_private()
//   off --> moving_out --> shared --> sealing --> moving_back --> off
//    ^          |           |  ^         |
//    +----------+-----------+  +---------+   failed
//
// A memory file that cannot be sealed leaves the phase at `sealing`: the caller ends the program.
//
// Threads: to_shared() and to_private() run under the engine's lock and while no granule arrives or
// leaves. The fault thread answers faults meanwhile, and takes no lock but copies_lock_. No
// record of a granule is changed here.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/kept_memory.h"
#include "engine/engine.h"
#include "engine/frames/backing.h"
#include "engine/numa/granules.h"

namespace sentinel {

class NodeCounting {
 public:
  explicit NodeCounting(const NodeGranules&);
  ~NodeCounting();
  NodeCounting(const NodeCounting&) = delete;
  NodeCounting& operator=(const NodeCounting&) = delete;

  FaultLoop* loop() const noexcept { return loop_.get(); }  // null: there is none
  bool possible() const noexcept { return loop_ && loop_->can_count() && loop_->can_replace(); }
  // Takes no lock of the engine's: it waits until the fault thread has done with the former source.
  void count_with(Engine::CountFault, void* source) noexcept;

  // Without a switch: the arena stays private, and its pages may be barred from then on.
  bool can_bar() const noexcept { return loop_ && loop_->can_bar(); }
  int start_barring() noexcept;
  void stop_barring() noexcept;

  // 0, or a negative errno: nothing has changed, or the file could not be sealed (-EBUSY).
  int to_shared() noexcept;
  int to_private() noexcept;

 private:
  enum class Phase { off, moving_out, shared, sealing, moving_back };

  static void on_missing(void* self, const Fault&) noexcept;
  static void on_minor(void* self, const Fault&) noexcept;
  static void on_barred(void* self, const Fault&) noexcept;
  int set_aside(std::uintptr_t aside) noexcept;
  void put_back(std::uintptr_t aside, GranuleIndex end) noexcept;
  int put_shared(std::uintptr_t aside) noexcept;
  bool copy_back(BlockIndex) noexcept;

  const NodeArena& arena_;
  const NodeGranules& granules_;
  std::unique_ptr<FaultLoop> loop_;
  std::unique_ptr<SharedFrames> shared_;  // the fault thread reads it in the phases that have it
  const std::uint64_t pinned_ = pinned_bytes();  // before there was a tensor
  std::atomic<Phase> phase_ = Phase::off;
  std::atomic<Engine::CountFault> count_fault_ = nullptr;
  std::atomic<void*> count_source_ = nullptr;
  std::mutex copies_lock_;    // copied_; taken by the fault thread too
  std::vector<bool> copied_;  // blocks, on the way back from counting
};

}  // namespace sentinel
