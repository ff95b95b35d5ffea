// The thread of an engine with two nodes over a file that gives blocks frames of the other node:
// those that a plan wants in fast memory, and those that it wants there no more. It copies a block
// into a frame of the other node; whoever touches the block meanwhile waits.
//
// It holds one frame more than the budget has for blocks, so that two full nodes can exchange
// blocks. Both nodes keep their limits with it.
//
// It works with the engine's lock, and without it while it copies. It decides nothing: what is to
// move is listed in FrameNodes.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

#include "engine/frames/frame_nodes.h"
#include "engine/ssd/blocks.h"
#include "engine/ssd/frame_budget.h"
#include "engine/ssd/frame_transfers.h"
#include "engine/ssd/frame_transitions.h"

namespace sentinel {

class FramePlacer {
 public:
  FramePlacer(std::mutex& lock, FrameBlocks& blocks, FrameTransfers& transfers, FrameBudget& budget,
              FrameTransitions& transitions, FrameNodes& nodes, const std::atomic<bool>& counting)
      : lock_(lock),
        blocks_(blocks),
        transfers_(transfers),
        budget_(budget),
        transitions_(transitions),
        nodes_(nodes),
        counting_(counting) {}

  void start();          // throws
  void stop() noexcept;  // without the lock

  // Its frame ends, before frames are counted anew. With the lock, while nothing moves.
  void let_go() noexcept;
  // One, if it holds a frame.
  std::uint64_t held() const noexcept { return spare_ == kNoToken ? 0 : 1; }

 private:
  void work() noexcept;
  bool step(EngineLock&) noexcept;
  bool move_listed(FrameNode to, EngineLock&) noexcept;
  bool empty(FrameNode, EngineLock&) noexcept;
  bool move(BlockIndex, FrameNode, EngineLock&) noexcept;
  bool may_move(BlockIndex, FrameNode from) const noexcept;
  Token acquire(FrameNode, EngineLock&) noexcept;
  void keep(Token) noexcept;

  std::mutex& lock_;
  FrameBlocks& blocks_;
  FrameTransfers& transfers_;
  FrameBudget& budget_;
  FrameTransitions& transitions_;
  FrameNodes& nodes_;
  const std::atomic<bool>& counting_;
  BlockIndex bringing_ = kNoBlock,
             sending_ = kNoBlock;  // taken from the lists, and without a frame
  Token spare_ = kNoToken;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace sentinel
