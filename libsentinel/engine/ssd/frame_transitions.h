// Each block's way from one state to the next: in blocks.h, the arrows. It decides neither which
// block comes nor which one leaves.
//
// All functions are called with the engine's lock. Those that take it drop it while a frame moves,
// is made, cleared or searched; the block's state says meanwhile that somebody handles it.
#pragma once

#include <atomic>
#include <span>

#include "engine/frames/frame_backings.h"
#include "engine/frames/guarded_arena.h"
#include "engine/ssd/blocks.h"
#include "engine/ssd/frame_budget.h"
#include "engine/ssd/frame_stalls.h"
#include "engine/ssd/frame_transfers.h"
#include "engine/ssd/frame_use.h"
#include "engine/ssd/frame_victims.h"
#include "sentinel/tier.h"

namespace sentinel {

class FrameTransitions {
 public:
  FrameTransitions(GuardedArena& arena, FrameBackings& backings, FrameBlocks& blocks, FrameUse& use,
                   FrameStalls& stalls, FrameTransfers& transfers, FrameBudget& budget,
                   FrameVictims& victims, const std::atomic<bool>& counting)
      : arena_(arena),
        backings_(backings),
        blocks_(blocks),
        use_(use),
        stalls_(stalls),
        transfers_(transfers),
        budget_(budget),
        victims_(victims),
        counting_(counting) {}

  // In: towards resident. `later`: who waits for it is not in turn.
  void demand(BlockIndex, bool later = false) noexcept;
  // False: no frame. The block is marked before the lock is dropped, so no one else handles it.
  bool start_promotion(BlockIndex, EngineLock&) noexcept;
  // An empty block's first touch, or before it unless `asked`: a frame with unspecified contents.
  // False: no frame.
  bool give(BlockIndex, EngineLock&, bool asked = true) noexcept;
  void arrived(const Completion&, EngineLock&) noexcept;

  // A plan wants the block in fast memory: of two nodes it gets a frame there, when there is one.
  void want(BlockIndex) noexcept;
  void want_all() noexcept;  // that plans want: after all came to the slow node
  // Whether of two nodes the fast one has a frame. A dead block there gives its own, if there is
  // no other; the lock is dropped then.
  bool fast_at_hand(EngineLock&) noexcept;
  // The same, and this is a dead block in the slow node: what begins in it could have that frame.
  bool could_be_fast(BlockIndex, EngineLock&) noexcept;
  // A resident block is wanted no more: it leaves. Of two nodes it stays in the slow one, unless it
  // belongs below.
  void stay_or_leave(BlockIndex) noexcept;
  // Out: towards absent or empty.
  void take_out(BlockIndex, EngineLock&) noexcept;
  void left(const Completion&, EngineLock&) noexcept;
  // An absent block in which nothing lives has nothing to keep.
  void make_absent_or_empty(FrameBlock&) noexcept;
  // The frame of the block that has been dead for longest becomes free, in the thread that asks.
  void reuse_dead(EngineLock&) noexcept;
  bool reuse_dead_of(FrameNode, EngineLock&) noexcept;  // false: no dead block lies there
  void give_up(BlockIndex, EngineLock&) noexcept;       // a dead block's frame

  // Its contents are given up. False: it stays as it is, for it moves, or somebody wants it now.
  bool lose(BlockIndex, EngineLock&) noexcept;
  // A lost block gets a copy of the bytes at `offset`, zeros beside them, and becomes resident. The
  // lock is dropped meanwhile: the bytes may lie in the arena.
  void refill(BlockIndex, std::uint64_t offset, std::span<const char>, EngineLock&) noexcept;
  // Whatever it held is no more: nothing lives in it, or it will be written whole.
  void forget_lost(BlockIndex) noexcept;
  // A resident block gets this frame in the place of its own, with its contents. Answers the frame
  // that is free then: the block's, or this one where the block may not move.
  Token exchange(BlockIndex, Token, EngineLock&) noexcept;

  std::uint64_t discarded() const noexcept { return discarded_; }  // blocks
  std::uint64_t refilled() const noexcept { return refilled_; }

 private:
  bool take(BlockIndex, EngineLock&) noexcept;
  bool left_unwritten(BlockIndex, const Digest&, EngineLock&) noexcept;
  void discard(BlockIndex, Token) noexcept;
  void put_back(BlockIndex, EngineLock&) noexcept;
  void install(BlockIndex, Token, EngineLock&) noexcept;
  FrameNode better_node(BlockIndex) const noexcept;
  void list(BlockIndex) noexcept;
  Token exchanged(BlockIndex, Token, EngineLock&) noexcept;
  void set_resident(BlockIndex) noexcept;

  GuardedArena& arena_;
  FrameBackings& backings_;
  FrameBlocks& blocks_;
  FrameUse& use_;
  FrameStalls& stalls_;
  FrameTransfers& transfers_;
  FrameBudget& budget_;
  FrameVictims& victims_;
  const std::atomic<bool>& counting_;
  std::uint64_t discarded_ = 0, refilled_ = 0;
};

}  // namespace sentinel
