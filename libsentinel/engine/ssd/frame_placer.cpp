// Exchanges frames between the two nodes, one block at a time.
#include "engine/ssd/frame_placer.h"

#include <tuple>
#include <utility>

#include "base/quiet_thread.h"

namespace sentinel {
namespace {

constexpr double kPinned_s = 0.01;

}  // namespace

void FramePlacer::start() {
  thread_ = quiet_thread([this] { work(); });
}

void FramePlacer::stop() noexcept {
  {
    const EngineLock guard(lock_);
    stop_ = true;
    blocks_.changed();
  }
  if (thread_.joinable()) thread_.join();
}

void FramePlacer::work() noexcept {
  EngineLock guard(lock_);
  while (!stop_) {
    if (step(guard)) continue;
    // What is pinned may be free again soon, and nobody says so.
    if (nodes_.is_over())
      blocks_.await_change(guard, kPinned_s);
    else
      blocks_.await_change(guard);
  }
}

bool FramePlacer::step(EngineLock& guard) noexcept {
  if (blocks_.frozen() || counting_) return false;
  return empty(FrameNode::fast, guard) || empty(FrameNode::slow, guard) ||
         move_listed(FrameNode::slow, guard) || move_listed(FrameNode::fast, guard);
}

// Whether it still is to leave that node.
bool FramePlacer::may_move(BlockIndex index, FrameNode from) const noexcept {
  const auto& block = blocks_[index];
  const bool wanted = block.wanted != 0;
  return block.state == BlockState::resident && block.queue != QueueId::evict && block.live != 0 &&
         !block.stuck && nodes_.of_block(index) == from && wanted == (from == FrameNode::slow);
}

// The next listed block that still is to go there. If it lacks a frame, a dead block gives its own.
bool FramePlacer::move_listed(FrameNode to, EngineLock& guard) noexcept {
  const bool fast = to == FrameNode::fast;
  auto& list = fast ? nodes_.to_fast() : nodes_.to_slow();
  auto& next = fast ? bringing_ : sending_;
  while (next == kNoBlock || !may_move(next, fast ? FrameNode::slow : FrameNode::fast)) {
    next = kNoBlock;
    if (list.empty()) return false;
    next = list.pop();
  }
  return move(next, to, guard) || transitions_.reuse_dead_of(to, guard);
}

// A node has more frames than it may have: the fast one as its budget is lowered, the slow one as
// one is set, or after counting. What is free ends, then what is dead. Then what is in the wrong
// node moves; of the rest, what was used first goes to the slow node and what was used last to the
// fast one. What was pinned the last time comes last.
bool FramePlacer::empty(FrameNode node, EngineLock& guard) noexcept {
  if (!nodes_.is_over(node)) return false;
  if (const auto token = budget_.get_free(node); token != kNoToken) {
    budget_.destroy(token);
    blocks_.changed();
    return true;
  }
  if (transitions_.reuse_dead_of(node, guard)) return true;
  const bool is_fast = node == FrameNode::fast;
  const auto rank = [&](BlockIndex index) {
    const auto& block = blocks_[index];
    const bool misplaced = (block.wanted != 0) != is_fast;
    return std::tuple(block.stuck, !misplaced, is_fast ? block.used : ~block.used);
  };
  auto best = kNoBlock;
  for (const auto index : blocks_.resident()) {
    if (nodes_.of_block(index) != node || blocks_[index].queue == QueueId::evict) continue;
    if (best == kNoBlock || rank(index) < rank(best)) best = index;
  }
  return best != kNoBlock && move(best, is_fast ? FrameNode::slow : FrameNode::fast, guard);
}

// False: no frame can be had there, or the block is pinned.
bool FramePlacer::move(BlockIndex index, FrameNode to, EngineLock& guard) noexcept {
  const auto token = acquire(to, guard);
  if (token == kNoToken) return false;
  const auto& block = blocks_[index];
  const bool still = block.state == BlockState::resident && block.queue != QueueId::evict &&
                     nodes_.of_block(index) != to && !blocks_.frozen();
  const auto freed = still ? transitions_.exchange(index, token, guard) : token;
  if (freed != token) nodes_.moved(to);
  keep(freed);
  return !block.stuck;
}

Token FramePlacer::acquire(FrameNode node, EngineLock& guard) noexcept {
  if (spare_ != kNoToken && nodes_.of(spare_) == node) return std::exchange(spare_, kNoToken);
  if (const auto token = budget_.get_free(node); token != kNoToken) {
    if (spare_ != kNoToken) budget_.keep_free(std::exchange(spare_, kNoToken));
    return token;
  }
  if (!nodes_.has_room(node)) return kNoToken;
  if (spare_ != kNoToken) budget_.destroy(std::exchange(spare_, kNoToken));
  return budget_.make(guard, node);
}

void FramePlacer::keep(Token token) noexcept {
  if (nodes_.is_over(nodes_.of(token))) {
    budget_.destroy(token);
  } else if (budget_.frames() > budget_.limit() && spare_ == kNoToken) {
    spare_ = token;
  } else {
    budget_.now_free(token);
    transfers_.feed();
  }
  blocks_.changed();
}

void FramePlacer::let_go() noexcept {
  if (spare_ != kNoToken) budget_.destroy(std::exchange(spare_, kNoToken));
}

}  // namespace sentinel
