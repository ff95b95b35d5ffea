// Which blocks leave, and for whose sake. It puts them into the queue of evictions, and takes none
// out of the arena itself.
//
// The engine's lock guards it. Nothing here waits or allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "engine/ssd/blocks.h"
#include "engine/ssd/frame_budget.h"
#include "engine/ssd/frame_transfers.h"
#include "engine/ssd/frame_use.h"
#include "engine/ssd/stream_order.h"

namespace sentinel {

class FrameVictims {
 public:
  // In the order in which blocks leave.
  enum class Rank : std::uint8_t { unwanted, unused, used, due, looped, soon, brief, fresh, stuck };

  FrameVictims(FrameBlocks& blocks, FrameUse& use, const StreamOrder& order,
               const FrameBudget& budget, const FrameTransfers& transfers)
      : blocks_(blocks), use_(use), order_(order), budget_(budget), transfers_(transfers) {}

  // Sees to it that `count` frames become free: what is being written counts; then dead blocks,
  // then released ones, then by rank() up to `last`.
  void want_frames(std::size_t count, Rank last = Rank::stuck) noexcept;
  // Frames for what is demanded, as many as can be read at once: more would take the blocks away
  // that have just come for threads in turn.
  std::size_t demanded() const noexcept;
  // For prefetches, which evict nothing that is wanted or in use: first the dead, then what was
  // released, then what a later op had touched since.
  void reclaim() noexcept;
  // Frames that an op that streams should find free, at its next first touch or fault.
  std::size_t room_ahead() const noexcept;
  // So that it does not have to wait for a write then.
  void make_room_ahead() noexcept;

  void evict(BlockIndex) noexcept;
  // It was to leave for somebody who waits for a frame: another has to.
  void keep(BlockIndex) noexcept;
  // Somebody waits for a frame and what was to free one may have changed.
  void look_again() noexcept;

 private:
  std::pair<Rank, std::uint64_t> rank(const FrameBlock&) const noexcept;

  FrameBlocks& blocks_;
  FrameUse& use_;
  const StreamOrder& order_;
  const FrameBudget& budget_;
  const FrameTransfers& transfers_;
  std::uint32_t looped_ = 0;  // victims of that rank so far
};

}  // namespace sentinel
