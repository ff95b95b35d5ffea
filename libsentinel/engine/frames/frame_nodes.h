// Frames of two NUMA nodes: in which node each lies, how many there may be, and which blocks are to
// get a frame of the other node.
//
// A frame's node never changes. It goes with the frame from the arena to the pool and back, for
// UFFDIO_MOVE copies nothing. A block changes its node as it gets another frame.
//
// The engine's lock guards all of it. Nothing here waits or allocates after the constructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/frames/backing.h"

namespace sentinel {

// First in, first out; a block is in it once.
class BlockRing {
 public:
  explicit BlockRing(std::size_t blocks) : ring_(blocks), in_(blocks) {}

  bool empty() const { return size_ == 0; }
  void push(BlockIndex index) noexcept {
    if (in_[index]) return;
    in_[index] = true;
    ring_[(first_ + size_++) % ring_.size()] = index;
  }
  BlockIndex pop() noexcept {
    const auto index = ring_[first_];
    first_ = (first_ + 1) % ring_.size();
    --size_;
    in_[index] = false;
    return index;
  }

 private:
  std::vector<BlockIndex> ring_;
  std::vector<bool> in_;
  std::size_t first_ = 0, size_ = 0;
};

class FrameNodes {
 public:
  // Before the fast node's budget is set no frame lies there, and the slow node has no limit.
  FrameNodes(std::size_t blocks, std::uint64_t slow_frames);

  // Frames of the fast node that may be. / Both nodes are without a limit, if they had one.
  void set_fast(std::uint64_t frames) noexcept;
  void unlimit() noexcept;
  void begin_peak() noexcept { peak_ = held(FrameNode::fast); }
  // Of both, for blocks: one frame is the placer's.
  std::uint64_t for_blocks() const noexcept { return most_[0] + most_[1] - 1; }
  bool has_room(FrameNode node) const noexcept { return held_[at(node)] < most_[at(node)]; }
  bool is_over(FrameNode node) const noexcept { return on_ && held_[at(node)] > most_[at(node)]; }
  bool is_over() const noexcept { return is_over(FrameNode::fast) || is_over(FrameNode::slow); }
  // Whence a new frame comes that is better in `wanted`.
  FrameNode of_next(FrameNode wanted) const noexcept;
  std::uint64_t held(FrameNode node) const noexcept { return held_[at(node)]; }
  std::uint64_t peak() const noexcept { return peak_; }  // of the fast node, since begin_peak()

  // A frame is about to be made / has this token / is about to end.
  void adds(FrameNode) noexcept;
  void made(Token token, FrameNode node) noexcept {
    if (on_) of_token_[static_cast<std::size_t>(token)] = node;
  }
  void ends(Token) noexcept;
  FrameNode of(Token token) const noexcept { return of_token_[static_cast<std::size_t>(token)]; }

  // A resident block's frame.
  FrameNode of_block(BlockIndex index) const noexcept { return of_block_[index]; }
  void taken(BlockIndex index, Token token) noexcept { made(token, of_block_[index]); }
  void installed(BlockIndex index, FrameNode node) noexcept {
    if (on_) of_block_[index] = node;
  }

  // Whether a block that no plan wants in fast memory belongs below the slow node.
  bool sinks(BlockIndex index) const noexcept { return sinks_[index]; }
  void sinks(BlockIndex index, bool yes) noexcept { sinks_[index] = yes; }

  // Blocks that a plan wants in fast memory / wants there no more. They may have changed since.
  BlockRing& to_fast() noexcept { return to_fast_; }
  BlockRing& to_slow() noexcept { return to_slow_; }

  // While accesses are counted frames are pages of a file, and have no tokens. / It did not come to
  // that, and this block was copied. / From then on so many are resident, all in the slow node.
  void stop() noexcept { on_ = false; }
  void go_on() noexcept { on_ = true; }
  void now_slow(BlockIndex) noexcept;
  void start_again(std::uint64_t resident) noexcept;
  bool on() const noexcept { return on_; }

  void moved(FrameNode to) noexcept { ++moved_[at(to)]; }
  std::uint64_t moved_to(FrameNode node) const noexcept { return moved_[at(node)]; }

 private:
  static std::size_t at(FrameNode node) noexcept { return static_cast<std::size_t>(node); }

  const std::uint64_t slow_frames_;
  std::vector<FrameNode> of_token_, of_block_;
  std::vector<bool> sinks_;
  BlockRing to_fast_, to_slow_;
  std::uint64_t held_[2] = {}, most_[2] = {}, moved_[2] = {};  // by FrameNode
  std::uint64_t peak_ = 0;
  bool on_ = true;
};

}  // namespace sentinel
