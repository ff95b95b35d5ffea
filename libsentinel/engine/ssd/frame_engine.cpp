#include "engine/ssd/frame_engine.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "alloc/ranges.h"
#include "base/quiet_thread.h"
#include "base/text.h"
#include "base/units.h"
#include "engine/host/limits.h"
#include "engine/host/stop.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kUnlimited = ~0ull / kGranule;
constexpr std::uint64_t kPiecesShare = 2;  // of what is beyond the smallest budget: half at most

}  // namespace

FrameEngine::FrameEngine(const EngineOptions& options)
    : options_(options),
      shown_directory_(printable(options.slow_directory)),
      loop_(FaultLoop::open()),
      blocks_(options.arena_bytes / kGranule),
      demanded_(blocks_, QueueId::demand),
      ahead_(blocks_, QueueId::ahead),
      prefetches_(blocks_, QueueId::prefetch),
      evictions_(blocks_, QueueId::evict),
      dead_(blocks_, QueueId::dead),
      spare_(blocks_, QueueId::spare),
      budget_frames_(kUnlimited) {
  granule_ = kGranule;
  arena_bytes_ = options.arena_bytes;
  arena_ = reserve_anonymous(arena_bytes_, kGranule);
  resident_.reserve(blocks_.size());
  free_.reserve(blocks_.size());
  loop_->set_missing_handler(&FrameEngine::on_missing, this);
  loop_->set_minor_handler(&FrameEngine::on_minor, this);
  loop_->set_lost_handler(&FrameEngine::on_lost, this);
  frames_in_pool_ = options_.use_move && loop_->can_move()
                        ? make_moved_frames(*loop_, arena_, arena_bytes_)
                        : make_copied_frames(*loop_, arena_, arena_bytes_);
  backing_ = frames_in_pool_.get();
  const bool protect = loop_->can_protect();
  if (const int code = loop_->register_range(arena_, arena_bytes_, true, false, protect); code != 0)
    throw Error("could not guard the arena", -code);
  if (protect) pieces_ = std::make_unique<Pieces>(*loop_, arena_, arena_bytes_);
}

FrameEngine::~FrameEngine() {
  {
    const Guard guard(lock_);
    stop_ = true;
  }
  if (promoter_.joinable()) {
    reader_->wake();
    writer_->wake();
    promoter_.join();
    demoter_.join();
  }
  loop_.reset();
  pieces_.reset();
  munmap(reinterpret_cast<void*>(arena_), arena_bytes_);
}

std::uint64_t FrameEngine::minimum_bytes(unsigned threads, std::size_t depth) {
  return (depth + kFramesPerThread * threads) * kGranule;
}

void FrameEngine::open_slow_tier() {
  if (slow_) return;
  slow_ = std::make_unique<SlowFile>(SlowFile::Options{.directory = options_.slow_directory,
                                                       .frame_bytes = kGranule,
                                                       .need_bytes = 64 * kGranule,
                                                       .allow_memory = options_.allow_memory_tier,
                                                       .checksums = options_.checksums});
  ExecutorOptions io{options_.io, options_.depth, kGranule, options_.inject};
  reader_ = make_executor(*slow_, io);
  writer_ = make_executor(*slow_, io);
  if (pieces_) {
    io.depth = Pieces::kBatch * Pieces::kBatches;
    pieces_->open(make_executor(*slow_, io), slow_->checksums());
  }
  show_arena(false);
  promoter_ = quiet_thread([this] { promoter(); });
  demoter_ = quiet_thread([this] { demoter(); });
}

void FrameEngine::set_budget(std::uint64_t bytes) {
  if (bytes == 0) {
    const Guard guard(lock_);
    budget_frames_ = kUnlimited;
    return;
  }
  open_slow_tier();
  Guard guard(lock_);
  budget_frames_ = bytes / kGranule;
  drop_pieces();
  if (pieces_) {
    const auto least = minimum_bytes(thread_count(), options_.depth) / kGranule;
    pieces_->set_limit((budget_frames_ - std::min(budget_frames_, least)) / kPiecesShare,
                       thread_count());
  }
  while (frames_ > budget_frames_) {
    if (!free_.empty()) {
      backing_->destroy(free_.back());
      free_.pop_back();
      --frames_;
      continue;
    }
    want_frames(std::min<std::size_t>(options_.depth, frames_ - budget_frames_));
    settled_.wait(guard);
  }
  counters_.peak_bytes = frames_ * kGranule;
}

bool FrameEngine::occupy(std::uintptr_t address, std::uint64_t bytes) noexcept {
  Guard guard(lock_);
  const auto now = clock_.load(std::memory_order_relaxed) << 24;
  bool lacking = false;
  for_blocks(address, bytes, [&](BlockIndex index) {
    auto& block = blocks_[index];
    if (side_by_side() && block.queue == QueueId::dead && !frozen_) give_up(index, guard);
    ++block.live;
    ++block.wanted;
    block.discard = false;  // on its way out, and written again before its pages have gone
    arrivals_ += 2;
    block.used = now | (arrivals_ & 0xffffff);
    block.made = true;
    block.brief = false;
    if (block.queue == QueueId::evict) keep(index);
    no_longer_idle(index);
    if (side_by_side()) return;
    give_at_once(index, guard);
    const bool waits = block.state == BlockState::empty && block.queue == QueueId::none;
    if (!waits || frames_ < budget_frames_ || streams()) return;
    ahead_.push(index);
    lacking = true;
  });
  if (lacking && reader_) reader_->wake();
  return true;
}

// What is about to be written gets a free frame at once, or that of a dead block: a fault would
// make the kernel clear a huge page for nothing, in each thread that touches the block, before it
// asks the guard, and a frame from there takes the way through both movers.
void FrameEngine::give_at_once(BlockIndex index, Guard& guard) noexcept {
  const auto& block = blocks_[index];
  const auto gives = [&] {
    return block.state == BlockState::empty && block.queue == QueueId::none && !frozen_ &&
           demanded_.empty();
  };
  if (gives() && lacks_frame()) reuse_dead(guard);
  if (gives() && !free_.empty()) give(index, guard);
}

// Blocks that another tensor shares keep what they hold, and so does what is still leaving: it may
// be written before its pages have gone.
void FrameEngine::overwrite(std::uintptr_t address, std::uint64_t bytes) noexcept {
  Guard guard(lock_);
  if (!slow_) return;
  for_blocks(address, bytes, [&](BlockIndex index) {
    auto& block = blocks_[index];
    block.used = clock_.load(std::memory_order_relaxed) << 24;
    if (block.live != 1 || block.state != BlockState::absent || block.queue == QueueId::demand)
      return;
    read_no_more(index);
    block.discard = true;
    make_absent_or_empty(block);
    give_at_once(index, guard);
  });
}

bool FrameEngine::vacate(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept {
  const Guard guard(lock_);
  bool resident = true;
  for_blocks(address, bytes, [&](BlockIndex index) {
    auto& block = blocks_[index];
    if (wanted) --block.wanted;
    if (--block.live != 0) return;
    no_longer_idle(index);
    if (block.state == BlockState::leaving) block.discard = true;
    read_no_more(index);
    if (block.state == BlockState::resident)
      note_dead(index);
    else
      resident = false;
    if (block.state == BlockState::absent && block.queue == QueueId::none)
      make_absent_or_empty(block);
  });
  if (!dead_.empty()) feed_promoter();
  return resident;
}

// An absent block in which nothing lives has nothing to keep.
void FrameEngine::make_absent_or_empty(Block& block) noexcept {
  block.state = block.live == 0 || block.discard ? BlockState::empty : BlockState::absent;
  block.discard = false;
  if (block.state == BlockState::absent) return;
  if (pieces_) pieces_->drop(static_cast<BlockIndex>(&block - blocks_.data()));
  release_slot(block);
}

void FrameEngine::release_slot(Block& block) noexcept {
  if (block.slot >= 0) slow_->release(block.slot);
  block.slot = -1;
}

void FrameEngine::touch(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const Guard guard(lock_);
  const auto now = clock_.load(std::memory_order_relaxed) << 24;
  for_blocks(address, bytes, [&](BlockIndex index) {
    auto& block = blocks_[index];
    block.used = now;
    block.made = block.brief = false;
    if (block.queue == QueueId::evict && block.wanted != 0) keep(index);
    if (block.queue == QueueId::spare) spare_.remove(index);
  });
}

void FrameEngine::stream() noexcept {
  const Guard guard(lock_);
  side_by_side_ = clock_.load(std::memory_order_relaxed);
}

void FrameEngine::brief(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const Guard guard(lock_);
  for_blocks(address, bytes, [&](BlockIndex index) { blocks_[index].brief = true; });
}

void FrameEngine::demote(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const Guard guard(lock_);
  for_blocks(address, bytes, [&](BlockIndex index) {
    auto& block = blocks_[index];
    if (--block.wanted != 0) return;
    read_no_more(index);
    if (block.state == BlockState::resident && block.live != 0) evict(index);
  });
}

void FrameEngine::release(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const Guard guard(lock_);
  for_blocks(address, bytes, [&](BlockIndex index) {
    auto& block = blocks_[index];
    if (--block.wanted != 0) return;
    read_no_more(index);
    if (block.state == BlockState::resident && block.queue == QueueId::none) spare_.push(index);
  });
  if (!prefetches_.empty() && reader_) reader_->wake();
}

void FrameEngine::promote(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const Guard guard(lock_);
  bool queued = false;
  for_blocks(address, bytes, [&](BlockIndex index) {
    auto& block = blocks_[index];
    ++block.wanted;
    block.used = clock_.load(std::memory_order_relaxed) << 24;
    block.made = block.brief = false;
    if (block.queue == QueueId::evict) keep(index);
    no_longer_idle(index);
    if (block.state == BlockState::leaving) block.recalled = true;
    if (block.queue == QueueId::ahead) ahead_.remove(index);
    if (block.state != BlockState::absent || block.queue != QueueId::none) return;
    prefetches_.push(index);
    queued = true;
  });
  if (queued) reader_->wake();
}

void FrameEngine::await(std::uintptr_t address, std::uint64_t bytes) noexcept {
  Guard guard(lock_);
  for_blocks(address, bytes, [&](BlockIndex index) {
    auto& block = blocks_[index];
    if (block.state == BlockState::resident || block.state == BlockState::empty) return;
    begin_wait();
    while (block.state != BlockState::resident && block.state != BlockState::empty) {
      if (block.state == BlockState::leaving) block.recalled = true;
      if (block.state == BlockState::absent) demand(index);
      settled_.wait(guard);
    }
    end_wait();
  });
}

void FrameEngine::begin_wait() noexcept {
  if (waiters_++ == 0) wait_began_ = Clock::now();
}

void FrameEngine::end_wait() noexcept {
  if (--waiters_ == 0)
    counters_.stall_us +=
        std::chrono::duration<double, std::micro>(Clock::now() - wait_began_).count();
}

// Neither for a plan nor ahead of the op that runs.
void FrameEngine::read_no_more(BlockIndex index) noexcept {
  if (blocks_[index].queue == QueueId::prefetch) prefetches_.remove(index);
  if (blocks_[index].queue == QueueId::ahead) ahead_.remove(index);
}

void FrameEngine::demand(BlockIndex index) noexcept {
  auto& block = blocks_[index];
  if (block.queue == QueueId::demand) return;
  read_no_more(index);
  demanded_.push(index);
  if (reader_) reader_->wake();
}

void FrameEngine::set_resident(BlockIndex index) noexcept {
  auto& block = blocks_[index];
  block.state = BlockState::resident;
  block.token = kNoToken;
  block.recalled = false;
  const std::uint64_t now = clock_.load(std::memory_order_relaxed) << 24;
  const bool in_use = block.used >= now;  // by the op that runs: it was read ahead for it
  block.made = block.made && in_use;
  if (block.faulted) arrivals_ += 2;
  const auto order = (block.faulted ? arrivals_ : arrivals_ - 1) & 0xffffff;
  block.used = std::max<std::uint64_t>(block.used & ~0xffffffull, now) | order;
  block.place = static_cast<std::uint32_t>(resident_.size());
  resident_.push_back(index);
  if (std::exchange(block.faulted, false))
    end_wait();
  else if (block.live != 0 && block.wanted == 0 && !block.stuck && !in_use)
    evict(index);  // demoted on its way
  if (block.live == 0) {
    note_dead(index);
    feed_promoter();
  }
  // While counting, whoever was woken by the install has faulted again and was told to wait.
  if (counting_) loop_->wake(arena_ + index * kGranule, kGranule);
  look_again();
  settled_.notify_all();
}

// It was to leave for somebody who waits for a frame: another has to.
void FrameEngine::keep(BlockIndex index) noexcept {
  evictions_.remove(index);
  look_again();
}

// There is a frame for the promoter, if it waits for one.
void FrameEngine::feed_promoter() noexcept {
  if (std::exchange(starved_, false)) reader_->wake();
}

// Somebody waits for a frame and what was to free one may have changed.
void FrameEngine::look_again() noexcept {
  if (!demanded_.empty() && reader_) reader_->wake();
}

void FrameEngine::unset_resident(BlockIndex index) noexcept {
  no_longer_idle(index);
  const auto place = blocks_[index].place;
  resident_[place] = resident_.back();
  blocks_[resident_[place]].place = place;
  resident_.pop_back();
}

// A frame that may be used now: a free one, or a new one within the budget. Pieces of an op that is
// over have held theirs for long enough. What was written last is used last: it is in the caches of
// whoever drives the disk, and slow to write to.
Token FrameEngine::free_frame(Guard& guard) noexcept {
  if (!free_.empty()) {
    const auto token = free_.front();
    free_.erase(free_.begin());
    return token;
  }
  if (frames_ >= budget_frames_ && pieces_ && pieces_->op() != clock_) drop_pieces();
  if (frames_ >= budget_frames_) return kNoToken;
  ++frames_;
  counters_.peak_bytes = std::max(counters_.peak_bytes, frames_ * kGranule);
  guard.unlock();
  const auto token = backing_->create();
  guard.lock();
  if (token < 0) fail("could not get memory for a frame", -token);
  return token;
}

// Pieces that lack memory come first, for they make that the op waits less often; where somebody
// waits for a frame, in turns.
void FrameEngine::now_free(Token token) noexcept {
  const bool lacking =
      pieces_ && pieces_->op() == clock_ && pieces_->frames() < pieces_->frames_wanted();
  pieces_next_ = demanded_.empty() || !pieces_next_;
  if (!lacking || !pieces_next_) return free_.push_back(token);
  backing_->destroy(token);
  pieces_->add_frame();
}

void FrameEngine::drop_pieces() noexcept {
  if (pieces_) frames_ -= pieces_->drop_all();
}

void FrameEngine::evict(BlockIndex index) noexcept {
  no_longer_idle(index);
  if (blocks_[index].queue != QueueId::none) return;
  evictions_.push(index);
  if (writer_) writer_->wake();
}

void FrameEngine::wait_until_settled(Guard& guard) noexcept {
  frozen_ = true;
  drop_pieces();
  settled_.wait(guard, [this] { return arriving_ == 0 && leaving_ == 0; });
}

EngineCounters FrameEngine::counters() const {
  const Guard guard(lock_);
  auto counters = counters_;
  counters.held_bytes = frames_ * kGranule;
  counters.reading = reading_.flow();
  counters.writing = writing_.flow();
  if (slow_) counters.checksum_us = slow_->checksums().spent_us();
  return counters;
}

// Nothing wrong has been computed yet and nothing must be: the thread that needs the bytes is held
// in its fault, so the process ends here.
void FrameEngine::fail(const char* what, int error) noexcept {
  if (error == EINVAL && locked_bytes() >= kGranule) stop_training(kLocked);
  char why[384];
  snprintf(why, sizeof why, "%s: %s (slow tier: %s)", what, print_transfer_error(error),
           shown_directory_.c_str());
  stop_training(why);
}

}  // namespace sentinel
