// How much pieces are worth to the op that runs: whether it goes in equal steps, and how many
// frames pieces get of the budget for it. It maps and reads nothing.
//
// Blocks that are read from front to back are better exchanged whole. So is what is dropped and
// read again too often.
//
// The engine's lock guards it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "engine/ssd/pieces/piece_table.h"

namespace sentinel {

class PieceWorth {
 public:
  void set_limit(std::uint64_t most_frames) noexcept {
    most_frames_ = most_frames;
    last_wanted_ = std::min(last_wanted_, most_frames_);
  }
  bool none() const noexcept { return most_frames_ == 0; }

  // Another op than op() begins to ask.
  void begin(std::uint64_t op) noexcept {
    stride_ = fronts_ = 0;
    lacked_ = 0;
    op_ = op;
  }
  // Whether the op should get this piece of the block alone. False also where it lacks memory.
  bool judge(BlockPieces&, std::uint32_t piece) noexcept;
  // A piece is read again for the op.
  void lacked() noexcept { ++lacked_; }

  std::uint64_t op() const noexcept { return op_; }  // that has used pieces last
  std::uint32_t stride() const noexcept { return stride_; }
  std::uint64_t frames() const noexcept { return frames_; }
  std::uint64_t frames_wanted() const noexcept { return wanted_; }
  std::uint64_t room() const noexcept { return frames_ * kPiecesPerBlock; }  // in pieces
  void add_frame() noexcept { ++frames_; }
  std::uint64_t give_back() noexcept {  // how many
    wanted_ = 0;
    return std::exchange(frames_, 0);
  }

 private:
  static constexpr std::uint64_t kFirstShare = 32;  // of the frames that pieces begin with: one in
  static constexpr std::uint64_t kLacked = 32;      // pieces read again are worth a frame more
  static constexpr std::uint32_t kAgain = 32;  // what a block and another's way out cost, in pieces
  static constexpr std::uint32_t kAgainGrowing = 128;  // the same while they may get more memory
  static constexpr std::uint32_t kFronts = 4;  // blocks read from front to back: so are the others
  static constexpr int kLittle = 8;            // pieces of a block
  static constexpr std::uint32_t kLongestStep = kPiecesPerBlock / 4;

  void look_for_steps(BlockPieces&, std::uint32_t piece) noexcept;

  std::uint64_t op_ = 0;
  std::uint32_t stride_ = 0;  // of the op, in pieces; 0: none is known
  std::uint32_t fronts_ = 0;  // blocks that the op has read from front to back
  std::uint64_t most_frames_ = 0, frames_ = 0, wanted_ = 0;
  std::uint64_t lacked_ = 0;       // pieces read again since `wanted_` last grew
  std::uint64_t last_wanted_ = 0;  // frames, by the last op that went on in equal steps
};

inline bool PieceWorth::judge(BlockPieces& block, std::uint32_t piece) noexcept {
  look_for_steps(block, piece);
  if (stride_ != 0 && wanted_ + 1 < last_wanted_) wanted_ = last_wanted_ - 1;
  if (stride_ == 0 && fronts_ >= kFronts) return false;
  const bool again = (block.seen >> piece & 1) != 0;
  const auto patience = frames_ < most_frames_ ? kAgainGrowing : kAgain;
  if (again && ++block.again >= patience) block.whole = true;
  if (wanted_ == 0) wanted_ = (most_frames_ + kFirstShare - 1) / kFirstShare;
  if (frames_ == wanted_) {
    wanted_ = std::min(wanted_ + lacked_ / kLacked, most_frames_);
    lacked_ %= kLacked;
  }
  if (stride_ != 0) last_wanted_ = wanted_;
  return frames_ != 0 && !block.whole;
}

// Threads and operands take turns, so a step is one of which two have been made in the block, not
// the way from the last piece to this. Steps of one piece are reading from front to back, unless
// much of the block is known by then: other sweeps have left it.
inline void PieceWorth::look_for_steps(BlockPieces& block, std::uint32_t piece) noexcept {
  const auto made = [&](std::uint32_t step) {
    return piece >= 2 * step && (block.seen >> (piece - step) & 1) != 0 &&
           (block.seen >> (piece - 2 * step) & 1) != 0;
  };
  if (made(1) && std::popcount(block.seen) < kLittle) {
    if (!block.whole) ++fronts_;
    block.whole = true;
  }
  for (std::uint32_t step = 2; stride_ == 0 && step <= kLongestStep; ++step)
    if (made(step)) stride_ = step;
}

}  // namespace sentinel
