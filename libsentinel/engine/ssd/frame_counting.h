// The switch between counting and moving: the arena's mapping is replaced at the same addresses,
// atomically, while other threads may go on using it
// (docs/design/counting-switch.md).
//
// All functions are called without the engine's lock, while the blocks are frozen and settled: no
// other thread moves a block then or makes a frame. They touch none of the arena's addresses.
#pragma once

#include <cstdint>

#include "engine/frames/frame_backings.h"
#include "engine/frames/guarded_arena.h"
#include "engine/ssd/blocks.h"
#include "engine/ssd/frame_budget.h"
#include "engine/ssd/frame_transfers.h"

namespace sentinel {

class FrameCounting {
 public:
  FrameCounting(GuardedArena& arena, FrameBackings& backings, FrameBlocks& blocks,
                const FrameTransfers& transfers, FrameBudget& budget)
      : arena_(arena),
        backings_(backings),
        blocks_(blocks),
        transfers_(transfers),
        budget_(budget) {}

  // From the pool's frames to the memory file and back. A negative errno: nothing has changed.
  int to_shared() noexcept;
  int to_moved() noexcept;
  // Frames of dead blocks become free. The caller sees to it that no tensor is born meanwhile.
  void drop_dead_blocks() noexcept;

 private:
  template <class Prepare>
  int replace_arena(Prepare&& prepare, bool minor) noexcept;
  void copy_back(BlockIndex) noexcept;

  GuardedArena& arena_;
  FrameBackings& backings_;
  FrameBlocks& blocks_;
  const FrameTransfers& transfers_;
  FrameBudget& budget_;
};

}  // namespace sentinel
