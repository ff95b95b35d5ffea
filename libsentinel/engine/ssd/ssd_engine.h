// The engine of a slow tier that no program can read in place, a file: holds the arena's blocks
// within a budget of frames. Demand keeps every access right
// (the guard); a plan's moves, given as demote() and promote(), only make it fast.
//
// Threads: the *guard* (the FaultLoop's thread) answers touches of absent blocks; the *promoter*
// reads blocks in, the *demoter* writes blocks out; any number of training threads call the public
// functions. One lock, `lock_`, guards all state; it is held across fork() and while the file
// grows, but never while a frame moves, blocks are transferred or the arena is touched, so the
// guard soon gets it. (Pieces, 1 MiB at most, are put in place with it.)
//
// The engine owns the lock and these parts. A part knows only those above it:
//
//   GuardedArena, FrameBackings   addresses and what lies behind them (engine/frames)
//   FrameBlocks                   the blocks' states and queues (blocks.h)
//   FrameUse, FrameStalls         when blocks were used; how long threads waited
//   StreamOrder                   in which order an op that is too large touches blocks
//   FrameTransfers                the slow tier's file and its executors
//   FrameBudget                   the frames that exist, and pieces
//   FrameVictims                  which blocks leave
//   FrameTransitions              a block's way from one state to the next
//   FrameGuard, FrameMovers       the three threads
//   FramePlacer                   the fourth, of an engine with two nodes over the file
//   FrameCounting, FrameFork      the switch to counting and back; children
//
// Deadlock freedom: demand takes precedence over prefetch, which evicts only what nobody wants or
// uses, and over room made ahead, which leaves what has just come where it is; an eviction waits
// for nothing but its own write, and demand evicts whatever is not being moved. So whoever waits
// for a block gets it as long as the budget is minimum_bytes() or more.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "engine/frames/frame_backings.h"
#include "engine/frames/guarded_arena.h"
#include "engine/io/executors.h"
#include "engine/ssd/blocks.h"
#include "engine/ssd/frame_budget.h"
#include "engine/ssd/frame_counting.h"
#include "engine/ssd/frame_fork.h"
#include "engine/ssd/frame_guard.h"
#include "engine/ssd/frame_movers.h"
#include "engine/ssd/frame_placer.h"
#include "engine/ssd/frame_stalls.h"
#include "engine/ssd/frame_transfers.h"
#include "engine/ssd/frame_transitions.h"
#include "engine/ssd/frame_use.h"
#include "engine/ssd/frame_victims.h"
#include "engine/ssd/stream_order.h"

namespace sentinel {

struct EngineOptions {
  std::string slow_directory;
  bool allow_memory_tier = false;
  IoBackend io = IoBackend::automatic;
  bool use_move = true;  // false: as on a kernel without UFFDIO_MOVE
  bool bars = false;     // the arena's pages may be barred, where the kernel can; then no pieces
  std::size_t depth = 8;
  std::string inject;
  ChecksumLevel checksums = ChecksumLevel::sampled;
  bool keep_copies = true;  // in the file, of what has come back and may leave unchanged
  std::shared_ptr<NodeCalls> node_calls;  // null: memory is one tier
  NodeTiers nodes;
  std::uint64_t node_bytes = 0;   // of the slow node; the budget is the fast one's then
  std::uint64_t arena_bytes = 0;  // addresses, a multiple of the granule
};

class SsdEngine final : public Engine {
 public:
  explicit SsdEngine(const EngineOptions&);  // throws Error
  ~SsdEngine() override;
  SsdEngine(const SsdEngine&) = delete;
  SsdEngine& operator=(const SsdEngine&) = delete;

  // The smallest budget that keeps `threads` threads going. More than a few take turns.
  static std::uint64_t minimum_bytes(unsigned threads, std::size_t depth);

  // What is over goes to the slow tier, which is opened when first needed. Of two nodes it is the
  // fast one's budget: what is over goes to the slow node, and what is over that to the file.
  void set_budget(std::uint64_t bytes) override;
  bool shrink_budget(std::uint64_t bytes, double most_s) override;

  bool on_allocate(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  bool on_free(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept override;
  // It is evicted after what was used earlier.
  void touch(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void begin_oversized_op(std::uint64_t name, bool side_by_side) override;
  void transient(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void demote(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void release(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void sink(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void promote(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void overwrite(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  std::uint64_t discard(std::uintptr_t address, std::uint64_t bytes, Ends ends) noexcept override;
  void refill(std::uintptr_t address, std::uint64_t bytes, const void* source) noexcept override;
  void remake_with(Remaker* remaker) override;
  void await(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void reuse_dead_blocks() noexcept override;

  FaultLoop* loop() noexcept override { return guarded_.loop(); }
  int start_counting() noexcept override;  // -EBUSY: a page is pinned by somebody
  int stop_counting() noexcept override;   // -EBUSY likewise: training cannot go on then
  bool can_bar() const noexcept override { return bars_; }
  int start_barring() noexcept override;
  void stop_barring() noexcept override;
  void count_with(CountFault, void* source) noexcept override;

  // A child is served what the parent had moved out, from the same file.
  void before_fork() noexcept override;
  void after_fork_in_parent() noexcept override;
  void after_fork_in_child() noexcept override;

  EngineCounters counters() const override;

 private:
  void open_slow_tier();
  int prefer_slow() noexcept;
  void give_at_once(BlockIndex, EngineLock&) noexcept;
  void want_no_more(std::uintptr_t address, std::uint64_t bytes, bool sinks) noexcept;
  bool lost_with(BlockIndex, std::uintptr_t address, std::uint64_t bytes) noexcept;
  bool is_whole(BlockIndex, std::uintptr_t address, std::uint64_t bytes) const noexcept;
  void forget_lost(BlockIndex) noexcept;
  void wait_until_settled(EngineLock&) noexcept;
  void thaw() noexcept;

  BlockIndex index_of(std::uintptr_t address) const noexcept {
    return static_cast<BlockIndex>((address - arena_) / kGranule);
  }
  BlockIndex last_of(std::uintptr_t address, std::uint64_t bytes) const noexcept {
    return index_of(address + (bytes == 0 ? 0 : bytes - 1));
  }
  template <class F>
  void for_blocks(std::uintptr_t address, std::uint64_t bytes, F&& f) {
    for (auto i = index_of(address); i <= last_of(address, bytes); ++i) f(i);
  }

  mutable std::mutex lock_;         // guards all below
  std::atomic<bool> bars_ = false;  // the arena is registered for bars
  // They end from the last to the first: pieces before the file, executors before the frames.
  GuardedArena guarded_;
  FrameBackings backings_{guarded_};
  FrameBlocks blocks_;
  FrameUse use_{clock_};
  StreamOrder order_{blocks_, use_};
  FrameStalls stalls_;
  FrameTransfers transfers_;
  FrameBudget budget_{backings_, blocks_, use_, transfers_};
  FrameVictims victims_{blocks_, use_, order_, budget_, transfers_};
  FrameTransitions transitions_{guarded_,   backings_, blocks_,  use_,     stalls_,
                                transfers_, budget_,   victims_, counting_};
  FrameGuard guard_{lock_,   guarded_,   backings_, blocks_,  use_,         order_,
                    stalls_, transfers_, budget_,   victims_, transitions_, counting_};
  FrameMovers movers_{lock_, blocks_, use_, order_, transfers_, budget_, victims_, transitions_};
  FrameCounting switch_{guarded_, backings_, blocks_, transfers_, budget_};
  FrameFork fork_{lock_, guarded_, blocks_, transfers_, guard_};
  const std::shared_ptr<NodeCalls> node_calls_;
  int slow_node_ = 0;
  std::optional<FrameNodes> nodes_;  // of an engine with two nodes; so is the placer
  std::optional<FramePlacer> placer_;
};

}  // namespace sentinel
