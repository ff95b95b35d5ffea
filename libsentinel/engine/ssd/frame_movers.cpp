// The promoter and the demoter. Each owns one executor and waits on it alone: for transfers to
// complete and for wake().
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/ssd/frame_engine.h"

namespace sentinel {
namespace {

constexpr std::size_t kBatch = 16;

bool is_zero(const void* frame) noexcept {
  const auto* bytes = static_cast<const char*>(frame);
  return bytes[0] == 0 && std::memcmp(bytes, bytes + 1, kGranule - 1) == 0;
}

}  // namespace

void FrameEngine::promoter() noexcept {
  std::array<Completion, kBatch> done;
  Guard guard(lock_);
  while (!stop_) {
    start_promotions(guard);
    guard.unlock();
    const auto count = reader_->wait(done);
    guard.lock();
    reading_.finished(count, count * kGranule);
    for (std::size_t i = 0; i < count; ++i) arrived(done[i], guard);
  }
}

void FrameEngine::demoter() noexcept {
  std::array<Completion, kBatch> done;
  Guard guard(lock_);
  while (!stop_) {
    start_demotions(guard);
    guard.unlock();
    const auto count = writer_->wait(done);
    guard.lock();
    writing_.finished(count, count * kGranule);
    for (std::size_t i = 0; i < count; ++i) left(done[i], guard);
  }
}

// Demand first, and it evicts what it needs. Then what the op that runs is going to touch, and what
// plans want: both start only on a frame that is free already, and plans leave those alone that are
// kept for the op.
void FrameEngine::start_promotions(Guard& guard) noexcept {
  const auto may_start = [this] { return !frozen_ && arriving_ < reader_->depth(); };
  while (may_start() && !demanded_.empty()) {
    const auto index = demanded_.front();
    const auto state = blocks_[index].state;
    if (state != BlockState::absent && state != BlockState::empty) {
      demanded_.remove(index);
    } else if (!start_promotion(index, guard)) {
      want_frames(demanded_.size());
      starved_ = true;
      break;
    }
  }
  while (may_start() && demanded_.empty() && !ahead_.empty()) {
    const auto index = ahead_.front();
    const auto& block = blocks_[index];
    const bool born = block.state == BlockState::empty;
    const bool due = block.state == BlockState::absent || (born && !streams());
    if (!due || block.used >> 24 != clock_) {  // it is there, its op is over, or give_ahead() will
      ahead_.remove(index);
    } else if ((born && !frame_at_hand()) || !start_promotion(index, guard)) {
      reclaim();
      starved_ = true;
      break;
    }
  }
  while (may_start() && demanded_.empty() && !prefetches_.empty()) {
    const auto index = prefetches_.front();
    if (blocks_[index].state != BlockState::absent) {
      prefetches_.remove(index);
    } else if ((streams() && free_.size() <= room_ahead()) || !start_promotion(index, guard)) {
      reclaim();
      starved_ = true;
      break;
    }
  }
  make_room_ahead();
}

// False: no frame. The block is marked before the lock is dropped, so no one else handles it.
bool FrameEngine::start_promotion(BlockIndex index, Guard& guard) noexcept {
  auto& block = blocks_[index];
  if (lacks_frame() && !dead_.empty()) {
    reuse_dead(guard);
    return true;  // the lock was dropped: look again
  }
  if (block.state == BlockState::empty) {
    auto& queue = block.queue == QueueId::demand ? demanded_ : ahead_;
    queue.remove(index);
    if (give(index, guard)) return true;
    queue.push(index);  // a frame that becomes free wakes the promoter; nothing else helps
    return false;
  }
  const auto token = free_frame(guard);
  if (token == kNoToken) return false;
  if (block.state != BlockState::absent) {  // changed while a frame was made
    free_.push_back(token);
    return true;
  }
  if (block.queue == QueueId::demand) demanded_.remove(index);
  read_no_more(index);
  if (pieces_) pieces_->drop(index);
  block.state = BlockState::arriving;
  block.token = token;
  ++arriving_;
  if (block.slot == kZeros) {
    guard.unlock();
    std::memset(backing_->buffer(index, token), 0, kGranule);
    guard.lock();
    release_slot(block);
    install(index, token, guard);
    return true;
  }
  reading_.started();
  const int code = reader_->submit({false, block.slot, backing_->buffer(index, token), index});
  if (code != 0) fail("could not start a read", -code);
  return true;
}

// An empty block's first touch, or before it unless `asked`: a frame with unspecified contents.
// False: no frame.
bool FrameEngine::give(BlockIndex index, Guard& guard, bool asked) noexcept {
  auto& block = blocks_[index];
  block.state = BlockState::arriving;
  ++arriving_;
  if (asked && !block.faulted) arrivals_ += 2;
  const auto token = free_frame(guard);
  if (token != kNoToken) {
    install(index, token, guard);
    return true;
  }
  block.state = BlockState::empty;
  --arriving_;
  return false;
}

void FrameEngine::install(BlockIndex index, Token token, Guard& guard) noexcept {
  guard.unlock();
  const int code = backing_->install(index, token);
  guard.lock();
  if (code != 0) fail("could not put a frame in its place", -code);
  --arriving_;
  set_resident(index);
}

void FrameEngine::arrived(const Completion& completion, Guard& guard) noexcept {
  const auto index = static_cast<BlockIndex>(completion.cookie);
  auto& block = blocks_[index];
  if (completion.error != 0) fail("could not read a tensor back", completion.error);
  release_slot(block);  // the copy in memory may be written from now on
  counters_.promoted_bytes += kGranule;
  install(index, block.token, guard);
}

void FrameEngine::start_demotions(Guard& guard) noexcept {
  while (!frozen_ && leaving_ < writer_->depth() && !evictions_.empty()) {
    const auto index = evictions_.pop();
    if (blocks_[index].state == BlockState::resident) take_out(index, guard);
  }
}

// Makes a resident block inaccessible; false: it stays, and another has to be chosen. A write by
// the training threads from then on waits in its fault and recalls the block, so nothing is lost.
bool FrameEngine::take(BlockIndex index, Guard& guard) noexcept {
  auto& block = blocks_[index];
  block.state = BlockState::leaving;
  block.discard = block.live == 0;
  unset_resident(index);
  ++leaving_;
  guard.unlock();
  Token token = kNoToken;
  const int code = backing_->take(index, token);
  guard.lock();
  block.token = token;
  block.stuck = code != 0;
  if (code == 0) return true;
  if (code == -EIO) fail("could not put a tensor's pages back", EIO);
  if (code == -EBADF || code == -ENOTTY) on_lost(this);  // no block could be taken, for ever
  --leaving_;                                            // pinned, or shared with a child
  const bool touched = block.faulted;
  set_resident(index);
  if (touched) loop_->wake(arena_ + index * kGranule, kGranule);
  block.used = (clock_.load(std::memory_order_relaxed) + 1) << 24;
  return false;
}

void FrameEngine::take_out(BlockIndex index, Guard& guard) noexcept {
  if (!take(index, guard)) return;
  auto& block = blocks_[index];
  if (block.discard) return discard(index, block.token);
  const auto slot = slow_->reserve();
  void* frame = backing_->buffer(index, block.token);
  guard.unlock();
  const bool zeros = is_zero(frame);
  if (!zeros && slot >= 0) slow_->checksums().take(slot, frame);
  guard.lock();
  if (slot >= 0 && (zeros || block.discard)) slow_->release(slot);
  if (block.discard) return discard(index, block.token);
  if (zeros) {  // as gradients are between two steps
    block.slot = kZeros;
    return block.recalled ? put_back(index, guard) : discard(index, block.token);
  }
  if (slot < 0) fail("could not get space for a tensor", static_cast<int>(-slot));
  block.slot = slot;
  writing_.started();
  const int submitted = writer_->submit(
      {.write = true, .slot = slot, .frame = frame, .cookie = index, .unchecked = true});
  if (submitted != 0) fail("could not start a write", -submitted);
}

// Nothing lives in the block: its frame is free at once, unless somebody has begun to use it again.
void FrameEngine::discard(BlockIndex index, Token token) noexcept {
  auto& block = blocks_[index];
  backing_->scrub(index, token);
  now_free(token);
  --leaving_;
  block.token = kNoToken;
  make_absent_or_empty(block);
  if (std::exchange(block.recalled, false)) demand(index);
  feed_promoter();
  settled_.notify_all();
}

void FrameEngine::left(const Completion& completion, Guard& guard) noexcept {
  const auto index = static_cast<BlockIndex>(completion.cookie);
  auto& block = blocks_[index];
  if (completion.error != 0) fail("could not write a tensor out", completion.error);
  counters_.demoted_bytes += kGranule;
  if (block.recalled) return put_back(index, guard);
  discard(index, block.token);
}

// The bytes of a block that was leaving are still in its frame.
void FrameEngine::put_back(BlockIndex index, Guard& guard) noexcept {
  auto& block = blocks_[index];
  release_slot(block);
  block.discard = false;
  --leaving_;
  block.state = BlockState::arriving;
  ++arriving_;
  install(index, block.token, guard);
}

}  // namespace sentinel
