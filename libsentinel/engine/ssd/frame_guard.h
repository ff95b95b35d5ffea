// The fault path: answers touches of blocks that are not resident. Runs on the FaultLoop's thread:
// allocates nothing, logs nothing, takes only the engine's lock, which nobody holds while touching
// the arena.
//
// The engine's lock guards it, but for count_with(): its two words are atomic.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "engine/engine.h"
#include "engine/frames/frame_backings.h"
#include "engine/frames/guarded_arena.h"
#include "engine/ssd/blocks.h"
#include "engine/ssd/frame_budget.h"
#include "engine/ssd/frame_stalls.h"
#include "engine/ssd/frame_transfers.h"
#include "engine/ssd/frame_transitions.h"
#include "engine/ssd/frame_use.h"
#include "engine/ssd/frame_victims.h"
#include "engine/ssd/stream_order.h"

namespace sentinel {

class FrameGuard {
 public:
  FrameGuard(std::mutex& lock, GuardedArena& arena, FrameBackings& backings, FrameBlocks& blocks,
             FrameUse& use, StreamOrder& order, FrameStalls& stalls, FrameTransfers& transfers,
             FrameBudget& budget, FrameVictims& victims, FrameTransitions& transitions,
             const std::atomic<bool>& counting)
      : lock_(lock),
        arena_(arena),
        backings_(backings),
        blocks_(blocks),
        use_(use),
        order_(order),
        stalls_(stalls),
        transfers_(transfers),
        budget_(budget),
        victims_(victims),
        transitions_(transitions),
        counting_(counting) {}

  void begin() noexcept;  // before a range is registered
  void remake_with(Remaker* remaker) noexcept { remaker_ = remaker; }  // null: nobody does
  bool can_remake() const noexcept { return remaker_ != nullptr; }
  // When this returns, the former source is no longer called: setting a handler waits for it.
  void count_with(Engine::CountFault, void* source) noexcept;

  // Somebody has resolved it meanwhile, or will once the arena is no more exchanged; unless the
  // program has taken the page away, and its threads fault for ever. With the lock.
  void look_again(const Fault&) noexcept;

 private:
  static void on_missing(void* self, const Fault&) noexcept;
  static void on_minor(void* self, const Fault&) noexcept;
  static void on_barred(void* self, const Fault&) noexcept;
  static void on_lost(void* self) noexcept;
  bool count_fault(const Fault&) noexcept;
  void on_fault(BlockIndex, pid_t thread, EngineLock&) noexcept;
  void on_empty(BlockIndex, pid_t thread, EngineLock&) noexcept;
  bool serve_piece(const Fault&, BlockIndex, EngineLock&) noexcept;
  void bring_piece(Pieces&, BlockIndex, std::uint32_t piece, std::uint64_t now,
                   EngineLock&) noexcept;
  void give_ahead(BlockIndex, EngineLock&) noexcept;
  void read_ahead(BlockIndex) noexcept;

  std::mutex& lock_;
  GuardedArena& arena_;
  FrameBackings& backings_;
  FrameBlocks& blocks_;
  FrameUse& use_;
  StreamOrder& order_;
  FrameStalls& stalls_;
  FrameTransfers& transfers_;
  FrameBudget& budget_;
  FrameVictims& victims_;
  FrameTransitions& transitions_;
  const std::atomic<bool>& counting_;
  std::atomic<Engine::CountFault> count_fault_ = nullptr;
  std::atomic<void*> count_source_ = nullptr;
  Remaker* remaker_ = nullptr;
  // Faults that had been resolved; how many of those that were looked at were not, in turn.
  std::uint32_t answered_ = 0, missing_in_turn_ = 0;
};

}  // namespace sentinel
