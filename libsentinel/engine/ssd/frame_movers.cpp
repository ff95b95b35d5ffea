// Runs the promoter and the demoter, which start transfers and finish completed ones.
#include "engine/ssd/frame_movers.h"

#include <algorithm>
#include <array>

#include "base/quiet_thread.h"

namespace sentinel {
namespace {

constexpr std::size_t kBatch = 16;

}  // namespace

void FrameMovers::start() {
  promoter_ = quiet_thread([this] { promoter(); });
  demoter_ = quiet_thread([this] { demoter(); });
}

void FrameMovers::stop() noexcept {
  {
    const EngineLock guard(lock_);
    stop_ = true;
  }
  if (promoter_.joinable()) {
    transfers_.wake_reader();
    transfers_.wake_writer();
    promoter_.join();
    demoter_.join();
  }
}

void FrameMovers::promoter() noexcept {
  std::array<Completion, kBatch> done;
  EngineLock guard(lock_);
  while (!stop_) {
    start_promotions(guard);
    guard.unlock();
    const auto count = transfers_.reader().wait(done);
    guard.lock();
    transfers_.reads_are_over(count);
    for (std::size_t i = 0; i < count; ++i) transitions_.arrived(done[i], guard);
  }
}

void FrameMovers::demoter() noexcept {
  std::array<Completion, kBatch> done;
  EngineLock guard(lock_);
  while (!stop_) {
    start_demotions(guard);
    guard.unlock();
    const auto count = transfers_.writer().wait(done);
    guard.lock();
    transfers_.writes_are_over(count);
    for (std::size_t i = 0; i < count; ++i) transitions_.left(done[i], guard);
  }
}

// Demand first, and it evicts what it needs. Then what the op that runs is going to touch, and what
// plans want: both start only on a frame that is free already, and plans leave those alone that are
// kept for the op.
void FrameMovers::start_promotions(EngineLock& guard) noexcept {
  start_demanded(guard);
  start_ahead(guard);
  start_prefetches(guard);
  if (!blocks_.frozen()) victims_.make_room_ahead();
}

void FrameMovers::start_demanded(EngineLock& guard) noexcept {
  auto& demanded = blocks_.demanded();
  while (may_start() && !demanded.empty()) {
    const auto index = demanded.front();
    const auto state = blocks_[index].state;
    if (state != BlockState::absent && state != BlockState::empty) {
      demanded.remove(index);
    } else if (!transitions_.start_promotion(index, guard)) {
      victims_.want_frames(victims_.demanded());
      transfers_.starve();
      break;
    }
  }
}

void FrameMovers::start_ahead(EngineLock& guard) noexcept {
  auto& ahead = blocks_.ahead();
  foresee();
  // A drive may report a queue of reads when all are done: a thread that waits for one of them, or
  // for one more, would wait for all.
  const auto depth = transfers_.depth();
  const auto most = order_.knows() ? std::max<std::size_t>(2, depth / 4) : depth;
  while (may_start() && blocks_.arriving() < most && blocks_.demanded().empty() && !ahead.empty()) {
    const auto index = ahead.front();
    const auto& block = blocks_[index];
    const bool born = block.state == BlockState::empty;
    const bool due = block.state == BlockState::absent || (born && !use_.streams());
    // It is there, its op is over, or the guard will give it with the blocks in front of it.
    if (!due || FrameUse::op_of(block) != use_.op()) {
      ahead.remove(index);
    } else if ((born && !budget_.frame_at_hand()) || !transitions_.start_promotion(index, guard)) {
      victims_.reclaim();
      transfers_.starve();
      break;
    }
  }
}

// What the op that runs is known to touch next.
void FrameMovers::foresee() noexcept {
  while (blocks_.ahead().size() < transfers_.depth()) {
    const auto index = order_.next();
    if (index == kNoBlock) return;
    blocks_.read_no_more(index);
    blocks_.ahead().push(index);
  }
}

void FrameMovers::start_prefetches(EngineLock& guard) noexcept {
  auto& prefetches = blocks_.prefetches();
  while (may_start() && blocks_.demanded().empty() && !prefetches.empty()) {
    const auto index = prefetches.front();
    if (blocks_[index].state != BlockState::absent) {
      prefetches.remove(index);
    } else if ((use_.streams() && budget_.free() <= victims_.room_ahead()) ||
               !transitions_.start_promotion(index, guard)) {
      victims_.reclaim();
      transfers_.starve();
      break;
    }
  }
}

void FrameMovers::start_demotions(EngineLock& guard) noexcept {
  auto& evictions = blocks_.evictions();
  while (!blocks_.frozen() && blocks_.going() < transfers_.writer().depth() && !evictions.empty()) {
    const auto index = evictions.pop();
    if (blocks_[index].state == BlockState::resident) transitions_.take_out(index, guard);
  }
}

}  // namespace sentinel
