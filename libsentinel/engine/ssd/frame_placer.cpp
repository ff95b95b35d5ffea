// Exchanges frames between the two nodes, one block at a time.
#include "engine/ssd/frame_placer.h"

#include <utility>

#include "base/quiet_thread.h"

namespace sentinel {

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
  while (!stop_)
    if (!step(guard)) blocks_.await_change(guard);
}

bool FramePlacer::step(EngineLock& guard) noexcept {
  if (blocks_.frozen() || counting_) return false;
  return lower_budget(guard) || send_one(guard) || bring_one(guard);
}

// Whether it still is to leave that node.
bool FramePlacer::may_move(BlockIndex index, FrameNode from) const noexcept {
  const auto& block = blocks_[index];
  const bool wanted = block.wanted != 0;
  return block.state == BlockState::resident && block.queue != QueueId::evict && block.live != 0 &&
         !block.stuck && nodes_.of_block(index) == from && wanted == (from == FrameNode::slow);
}

bool FramePlacer::bring_one(EngineLock& guard) noexcept {
  for (;;) {
    if (bringing_ != kNoBlock && may_move(bringing_, FrameNode::slow)) break;
    bringing_ = kNoBlock;
    if (nodes_.to_fast().empty()) return false;
    bringing_ = nodes_.to_fast().pop();
  }
  if (move(bringing_, FrameNode::fast, guard)) return true;
  return transitions_.reuse_dead_fast(guard);
}

bool FramePlacer::send_one(EngineLock& guard) noexcept {
  for (;;) {
    if (sending_ != kNoBlock && may_move(sending_, FrameNode::fast)) break;
    sending_ = kNoBlock;
    if (nodes_.to_slow().empty()) return false;
    sending_ = nodes_.to_slow().pop();
  }
  return move(sending_, FrameNode::slow, guard);
}

// The fast node has more frames than it may have: what is unused goes first.
bool FramePlacer::lower_budget(EngineLock& guard) noexcept {
  if (!nodes_.is_over(FrameNode::fast)) return false;
  if (const auto token = budget_.get_free(FrameNode::fast); token != kNoToken) {
    budget_.destroy(token);
    blocks_.changed();
    return true;
  }
  if (transitions_.reuse_dead_fast(guard)) return true;
  auto best = kNoBlock;
  for (const auto index : blocks_.resident()) {
    const auto& block = blocks_[index];
    if (nodes_.of_block(index) != FrameNode::fast || block.queue == QueueId::evict || block.stuck)
      continue;
    if (best == kNoBlock || block.used < blocks_[best].used) best = index;
  }
  return best != kNoBlock && move(best, FrameNode::slow, guard);
}

// False: no frame can be had there.
bool FramePlacer::move(BlockIndex index, FrameNode to, EngineLock& guard) noexcept {
  const auto token = acquire(to, guard);
  if (token == kNoToken) return false;
  const auto& block = blocks_[index];
  const bool still = block.state == BlockState::resident && block.queue != QueueId::evict &&
                     nodes_.of_block(index) != to && !blocks_.frozen();
  const auto freed = still ? transitions_.exchange(index, token, guard) : token;
  if (freed != token) nodes_.moved(to);
  keep(freed);
  return true;
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
