// Which blocks leave, and for whose sake.
#include <algorithm>

#include "engine/host/limits.h"
#include "engine/ssd/frame_engine.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kAheadShare = 16;  // of the budget kept free for a streaming op: a 16th

}  // namespace

// Whether it has just come for the op that runs, so that the instruction that asked for it may not
// have been done yet: as many as all threads' instructions take. What was read ahead with them is
// as fresh as they are.
bool FrameEngine::fresh(const Block& block) const noexcept {
  static const std::uint64_t kept = kFramesPerThread * thread_count();
  return block.used >> 24 == clock_.load(std::memory_order_relaxed) &&
         ((arrivals_ - block.used) & 0xffffff) < 2 * kept;
}

// What no plan wants, then what the op that runs does not use, the longest unused first. Of the
// op's own blocks each has to leave once, in the order in which they came: most ops are done with
// them. What is needed again afterwards is gone over again and again, and the oldest is just what
// is needed next: of these the last to come leaves, so that the others stay. So does, in an op that
// strides, what it makes: it is written in every sweep. Behind all these leaves what the op makes
// for itself: it dies without being written. What has just come is spared: two threads would else
// take each other's block away for ever.
std::pair<FrameEngine::Rank, std::uint64_t> FrameEngine::rank(const Block& block) const noexcept {
  const auto now = clock_.load(std::memory_order_relaxed);
  if (block.stuck) return {Rank::stuck, block.used};
  if (block.used >> 24 < now)
    return {block.wanted == 0 ? Rank::unwanted : Rank::unused, block.used};
  if (fresh(block)) return {Rank::fresh, block.used};
  if (block.brief) return {Rank::brief, block.left == now ? ~block.used : block.used};
  const bool kept = block.made && pieces_ && pieces_->strides(now);
  if (block.left == now || kept) return {Rank::looped, ~block.used};
  return {Rank::used, block.used};
}

// Sees to it that `count` frames become free: what is being written counts; then dead blocks, then
// released ones, then by rank() up to `last`.
void FrameEngine::want_frames(std::size_t count, Rank last) noexcept {
  const auto under_way = leaving_ + evictions_.size();
  if (under_way >= count || frozen_) return;
  const auto needed = std::min(count - under_way, resident_.size());
  const auto now = clock_.load(std::memory_order_relaxed);
  for (std::size_t n = 0; n < needed; ++n) {
    auto best = dead_.empty() ? spare_.front() : dead_.front();
    if (best != kNoBlock) {
      evict(best);
      continue;
    }
    for (const auto index : resident_)
      if (blocks_[index].queue == QueueId::none &&
          (best == kNoBlock || rank(blocks_[index]) < rank(blocks_[best])))
        best = index;
    if (best == kNoBlock || rank(blocks_[best]).first > last) return;
    if (blocks_[best].used >> 24 == now) blocks_[best].left = streamed_ = now;
    evict(best);
  }
}

// Whether the op that runs goes through more than fits.
bool FrameEngine::streams() const noexcept {
  return streamed_ == clock_.load(std::memory_order_relaxed);
}

bool FrameEngine::side_by_side() const noexcept {
  return side_by_side_ == clock_.load(std::memory_order_relaxed);
}

// Those of an op's pieces count once it is over: free_frame() drops them.
bool FrameEngine::frame_at_hand() const noexcept {
  const bool over = pieces_ && pieces_->op() != clock_ && pieces_->frames() != 0;
  return !lacks_frame() || !dead_.empty() || over;
}

// Frames that such an op should find free, at its next first touch or fault.
std::size_t FrameEngine::room_ahead() const noexcept {
  return streams() ? std::min<std::size_t>(options_.depth, budget_frames_ / kAheadShare) : 0;
}

// So that it does not have to wait for a write then.
void FrameEngine::make_room_ahead() noexcept {
  const auto ahead = room_ahead();
  const auto not_made = budget_frames_ - std::min(budget_frames_, frames_);
  const auto room = free_.size() + std::min<std::uint64_t>(not_made, ahead);
  if (room < ahead) want_frames(demanded_.size() + ahead - room, Rank::looped);
}

// What could not be taken the last time is not looked for among the dead.
void FrameEngine::note_dead(BlockIndex index) noexcept {
  if (blocks_[index].queue == QueueId::none && !blocks_[index].stuck) dead_.push(index);
}

void FrameEngine::no_longer_idle(BlockIndex index) noexcept {
  if (blocks_[index].queue == QueueId::dead) dead_.remove(index);
  if (blocks_[index].queue == QueueId::spare) spare_.remove(index);
}

// For prefetches, which evict nothing that is wanted or in use: first the dead, then what was
// released, then what a later op had touched since.
void FrameEngine::reclaim() noexcept {
  auto n = leaving_ + evictions_.size();
  const auto waiting = ahead_.size() + prefetches_.size();
  for (; n < waiting && !dead_.empty(); ++n) evict(dead_.front());
  const auto most = std::min(waiting, options_.depth);
  for (; n < most && !spare_.empty(); ++n) evict(spare_.front());
  const auto now = clock_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; n < most && i < resident_.size(); ++i) {
    const auto& block = blocks_[resident_[i]];
    if (block.queue != QueueId::none || block.wanted != 0 || block.stuck) continue;
    if (block.used >> 24 >= now) continue;
    evict(resident_[i]);
    ++n;
  }
}

// The frame of the block that has been dead for longest becomes free, in the thread that asks.
void FrameEngine::reuse_dead(Guard& guard) noexcept {
  if (!dead_.empty()) give_up(dead_.front(), guard);
}

// A dead block's frame.
void FrameEngine::give_up(BlockIndex index, Guard& guard) noexcept {
  if (take(index, guard)) {
    if (blocks_[index].discard)
      discard(index, blocks_[index].token);
    else
      put_back(index, guard);
  }
  if (!evictions_.empty() && writer_)
    writer_->wake();  // one less leaves: it may have kept the demoter waiting
}

}  // namespace sentinel
