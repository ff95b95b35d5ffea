// The frames that exist, and how many there may be. Frames lie in the arena, are free, in flight or
// given to pieces. It chooses no block to leave; see FrameVictims.
//
// Invariant: frames() exceeds the budget only after set_limit() has lowered it, until as many have
// been destroyed. The engine's lock guards it; get() drops the lock while it makes a frame.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/frames/frame_backings.h"
#include "engine/frames/frame_nodes.h"
#include "engine/frames/guarded_arena.h"
#include "engine/ssd/blocks.h"
#include "engine/ssd/frame_transfers.h"
#include "engine/ssd/frame_use.h"
#include "engine/ssd/pieces/pieces.h"

namespace sentinel {

class FrameBudget {
 public:
  FrameBudget(FrameBackings&, FrameBlocks&, const FrameUse&, const FrameTransfers&);

  // Where the arena is registered with write protection.
  void make_pieces(const GuardedArena& arena) {
    pieces_.emplace(*arena.loop(), arena.begin(), arena.bytes());
  }
  // Frames of two nodes are told apart from now on.
  void tell_apart(FrameNodes& nodes) noexcept { nodes_ = &nodes; }
  FrameNodes* nodes() const noexcept { return nodes_; }  // null: memory is one tier
  Pieces* pieces() noexcept { return pieces_ ? &*pieces_ : nullptr; }
  const Pieces* pieces() const noexcept { return pieces_ ? &*pieces_ : nullptr; }
  void drop_pieces() noexcept;

  void unlimit() noexcept { limit_ = kUnlimited; }
  // `least`: the smallest budget, of which pieces take nothing.
  void set_limit(std::uint64_t frames, std::uint64_t least);
  bool destroy_free() noexcept;  // one; false: none is free
  void destroy(Token) noexcept;
  void begin_peak() noexcept { peak_bytes_ = bytes(); }

  std::uint64_t limit() const noexcept { return limit_; }
  std::uint64_t frames() const noexcept { return frames_; }
  std::uint64_t bytes() const noexcept { return frames_ * kGranule; }
  std::uint64_t peak_bytes() const noexcept { return peak_bytes_; }
  bool is_full() const noexcept { return frames_ >= limit_; }
  bool has_free() const noexcept { return !free_.empty(); }
  bool has_free_fast() const noexcept;  // of two nodes
  std::size_t free() const noexcept { return free_.size(); }
  bool lacks_frame() const noexcept { return free_.empty() && is_full(); }
  // Without an eviction. Frames of pieces count once their op is over, for get() drops them.
  bool frame_at_hand() const noexcept;

  // A frame that may be used now, or kNoToken: a free one, or a new one within the budget. Of the
  // node that is wanted, if there is one.
  Token get(EngineLock&, FrameNode wanted = FrameNode::slow) noexcept;
  Token get_free(FrameNode) noexcept;                               // of that node alone
  Token make(EngineLock&, FrameNode) noexcept;                      // whatever the budget is
  void keep_free(Token token) noexcept { free_.push_back(token); }  // was got, and is not used
  void now_free(Token) noexcept;                                    // for pieces too

  // Around counting, while nothing moves: tokens of the pool / tokens that name no frame of it.
  void destroy_all_free() noexcept;
  void forget_free() noexcept;

 private:
  static constexpr std::uint64_t kUnlimited = ~0ull / kGranule;

  bool tells_apart() const noexcept { return nodes_ && nodes_->on(); }

  FrameBackings& backings_;
  FrameBlocks& blocks_;
  const FrameUse& use_;
  const FrameTransfers& transfers_;
  FrameNodes* nodes_ = nullptr;
  std::vector<Token> free_;
  std::uint64_t frames_ = 0;  // in the arena, free, in flight and given to pieces
  std::uint64_t limit_ = kUnlimited;
  std::uint64_t peak_bytes_ = 0;
  std::optional<Pieces> pieces_;  // none: no write protection here
  bool pieces_next_ = true;       // of pieces and a demand that both lack frames
};

}  // namespace sentinel
