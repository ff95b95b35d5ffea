// The order in which an op that uses more than the budget asks for its blocks, as earlier steps
// have shown it: Belady's rule needs it, and so does a read ahead of the touch. It moves nothing.
//
// A *touch* is a block that was asked for while it had no frame. It is known by the range that it
// lies in, as the op names or allocates its ranges in the same order in each step, and by its place
// there: tensors lie elsewhere in each step. The *cursor* stands behind the last touch that was
// seen. What has a frame is touched unseen, so the cursor jumps.
//
// What is asked for out of that order is inserted where it was asked for. An order that is wrong
// more often than right is replaced by the last one.
//
// The engine's lock guards it. Only begin() allocates.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/ssd/blocks.h"
#include "engine/ssd/frame_use.h"

namespace sentinel {

class StreamOrder {
 public:
  static constexpr std::uint32_t kNever = ~0u;

  StreamOrder(FrameBlocks& blocks, const FrameUse& use) : blocks_(blocks), use_(use) {}

  // The op that runs is `name` in each step. Of what it will touch, `most` blocks are read before
  // one of them is seen to be touched. What was learned of the op before is kept.
  void begin(std::uint64_t name, std::size_t most);
  // It names, or allocates, what lies in these blocks.
  void uses(BlockIndex first, BlockIndex last) noexcept;

  // It touches a block that has no frame, or is about to. False: that was not foreseen.
  bool asked(BlockIndex) noexcept;
  // It touched so many parts of blocks that stay where they are.
  void asked_for_pieces(std::uint64_t count) noexcept { pieces_ += count; }
  // The next that should be read, or kNoBlock: enough are on their way, or the rest is here.
  BlockIndex next() noexcept;

  // Whether the op that runs was learned.
  bool knows() const noexcept { return runs() && !order_->touches.empty(); }
  // When it will touch the block, in touches; kNever: not known to be.
  std::uint32_t due(const FrameBlock& block) const noexcept {
    return block.due.op == use_.op() ? block.due.touch : kNever;
  }
  // Whether that is in so few touches that it should stay whatever else is asked for.
  bool is_soon(const FrameBlock& block) const noexcept {
    return !strays() && due(block) < cursor_ + 2 * most_ahead_;
  }
  // Frames that are needed beyond the touch that was seen last, for what next() has come to.
  std::size_t outstanding() const noexcept { return ahead_size_; }
  // The touches that next() has come to.
  std::uint32_t reached() const noexcept { return issued_; }

 private:
  struct Touch {
    std::uint32_t range = 0, block = 0;
    bool birth = false;  // nothing had been written to it
    bool operator==(const Touch&) const = default;
    std::uint64_t key() const { return std::uint64_t{range} << 32 | block; }
  };
  struct Order {
    std::vector<Touch> touches;
    std::vector<std::uint32_t> again;  // of each touch: the next of the same block, or kNever
    std::unordered_map<std::uint64_t, std::uint32_t> first;  // of a block
    std::uint32_t wrong = 0;                                 // steps in turn
    bool unfit = false;                                      // too long, or touched in pieces
  };
  struct New {
    Touch touch;
    std::uint32_t before = 0;  // which known touch
  };
  struct Range {
    BlockIndex first = 0, last = 0;
  };

  static constexpr std::size_t kMostOrders = 1024;   // then all are learned anew
  static constexpr std::size_t kMostTouches = 8192;  // of an op
  static constexpr std::size_t kMostRanges = 256;
  static constexpr std::size_t kMostAhead = 64;
  static constexpr std::uint32_t kFurther = 16;  // touches beyond those reached
  static constexpr std::uint32_t kBack = 32;     // threads take turns
  static constexpr std::uint32_t kHints = 3;     // touches that say that the op is further
  static constexpr std::uint32_t kWrong = 4;     // steps in turn: then nothing is made of the order

  // The op does what it was not known to do, for longer than threads that take turns.
  bool strays() const noexcept { return astray_ > kBack; }
  bool runs() const noexcept { return order_ != nullptr && op_ == use_.op(); }
  bool touch_of(BlockIndex, Touch&) const noexcept;
  BlockIndex block_of(const Touch&) const noexcept;
  void reach(std::uint32_t cursor) noexcept;
  bool was_new(const Touch&) const noexcept;
  bool find_again(const Touch&) noexcept;
  void learn();
  static void index(Order&);

  FrameBlocks& blocks_;
  const FrameUse& use_;
  std::unordered_map<std::uint64_t, Order> orders_;  // by the op's name
  // Of the op that runs, or ran last.
  Order* order_ = nullptr;
  std::uint64_t op_ = 0;
  std::vector<Range> ranges_;
  std::vector<bool> seen_;  // touches
  std::vector<New> new_;
  std::uint32_t cursor_ = 0, issued_ = 0, met_ = 0, astray_ = 0;
  std::uint32_t hint_ = 0, hints_ = 0;  // a place beyond the window, and how many touches say so
  std::uint64_t pieces_ = 0;
  // Touches beyond the cursor that need a frame, those that were issued or are births: a ring.
  std::array<std::uint32_t, kMostAhead> ahead_{};
  std::size_t ahead_begin_ = 0, ahead_size_ = 0, most_ahead_ = 0;
};

}  // namespace sentinel
