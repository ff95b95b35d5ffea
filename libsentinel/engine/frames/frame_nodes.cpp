// Counts the frames of each node.
#include "engine/frames/frame_nodes.h"

#include <algorithm>

namespace sentinel {
namespace {

constexpr std::uint64_t kUnlimited = ~0ull;

}  // namespace

FrameNodes::FrameNodes(std::size_t blocks, std::uint64_t slow_frames)
    : slow_frames_(slow_frames),
      of_token_(blocks, FrameNode::slow),
      of_block_(blocks, FrameNode::slow),
      sinks_(blocks),
      to_fast_(blocks),
      to_slow_(blocks) {
  most_[at(FrameNode::slow)] = kUnlimited;
}

void FrameNodes::set_fast(std::uint64_t frames) noexcept {
  most_[at(FrameNode::fast)] = frames;
  most_[at(FrameNode::slow)] = slow_frames_;
}

void FrameNodes::unlimit() noexcept {
  if (most_[at(FrameNode::fast)] == 0) return;
  most_[at(FrameNode::fast)] = most_[at(FrameNode::slow)] = kUnlimited;
}

FrameNode FrameNodes::of_next(FrameNode wanted) const noexcept {
  const auto other = wanted == FrameNode::fast ? FrameNode::slow : FrameNode::fast;
  return has_room(wanted) || !has_room(other) ? wanted : other;
}

void FrameNodes::adds(FrameNode node) noexcept {
  if (!on_) return;
  ++held_[at(node)];
  peak_ = std::max(peak_, held(FrameNode::fast));
}

void FrameNodes::ends(Token token) noexcept {
  if (on_) --held_[at(of(token))];
}

void FrameNodes::now_slow(BlockIndex index) noexcept {
  --held_[at(of_block_[index])];
  ++held_[at(FrameNode::slow)];
  of_block_[index] = FrameNode::slow;
}

void FrameNodes::start_again(std::uint64_t resident) noexcept {
  std::ranges::fill(of_token_, FrameNode::slow);
  std::ranges::fill(of_block_, FrameNode::slow);
  held_[at(FrameNode::slow)] = resident;
  held_[at(FrameNode::fast)] = 0;
  on_ = true;
}

}  // namespace sentinel
