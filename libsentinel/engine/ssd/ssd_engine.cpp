// Joins the engine's parts: turns tensors' addresses into blocks, and calls the part that acts.
#include "engine/ssd/ssd_engine.h"

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "engine/host/limits.h"
#include "sentinel/error.h"

namespace sentinel {

SsdEngine::SsdEngine(const EngineOptions& options)
    : guarded_(options.arena_bytes),
      blocks_(options.arena_bytes / kGranule),
      transfers_({.directory = options.slow_directory,
                  .frame_bytes = kGranule,
                  .need_bytes = 64 * kGranule,
                  .allow_memory = options.allow_memory_tier,
                  .checksums = options.checksums},
                 {options.io, options.depth, kGranule, options.inject}, options.keep_copies),
      node_calls_(options.node_calls) {
  granule_ = kGranule;
  arena_bytes_ = guarded_.bytes();
  arena_ = guarded_.begin();
  guard_.begin();
  if (node_calls_) {
    slow_node_ = options.nodes.slow;
    nodes_.emplace(blocks_.size(), options.node_bytes / kGranule);
    budget_.tell_apart(*nodes_);
    placer_.emplace(lock_, blocks_, transfers_, budget_, transitions_, *nodes_, counting_);
    backings_.open(options.use_move, FrameMemory{*node_calls_, options.nodes});
  } else {
    backings_.open(options.use_move);
  }
  bars_ = options.bars && options.use_move && loop()->can_move() && loop()->can_bar();
  if (bars_) backings_.pool().arrive(Barred::on_its_way);
  // Pieces are copied to wherever there is room.
  const bool protect = loop()->can_protect() && !bars_ && !node_calls_;
  if (const int code = bars_ ? guarded_.guard_with_bars() : guarded_.guard(protect); code != 0)
    throw Error("could not guard the arena", -code);
  if (protect) budget_.make_pieces(guarded_);
  if (const int code = prefer_slow(); code != 0)
    throw Error("could not prefer a node for the arena (mbind)", -code);
}

// For what the kernel copies in the arena, for a child say; and where it balances nodes, it leaves
// such memory alone.
int SsdEngine::prefer_slow() noexcept {
  if (!node_calls_) return 0;
  return node_calls_->bind(reinterpret_cast<void*>(arena_), arena_bytes_, slow_node_);
}

SsdEngine::~SsdEngine() {
  if (placer_) placer_->stop();
  movers_.stop();
  guarded_.unguard();
}

std::uint64_t SsdEngine::minimum_bytes(unsigned threads, std::size_t depth) {
  return (depth + FrameUse::frames_at_once(threads)) * kGranule;
}

void SsdEngine::open_slow_tier() {
  if (transfers_.is_open()) return;
  transfers_.open();
  if (auto* pieces = budget_.pieces())
    pieces->open(transfers_.make_reader(Pieces::kBatch * Pieces::kBatches),
                 transfers_.file().checksums());
  guarded_.show_to_child(false);
  movers_.start();
  if (placer_) placer_->start();
}

void SsdEngine::set_budget(std::uint64_t bytes) {
  if (bytes == 0) {
    const EngineLock guard(lock_);
    budget_.unlimit();
    if (nodes_) nodes_->unlimit();
    return;
  }
  constexpr double kForEver = 1e9;
  shrink_budget(bytes, kForEver);
}

bool SsdEngine::shrink_budget(std::uint64_t bytes, double most_s) {
  const auto begin = Clock::now();
  open_slow_tier();
  EngineLock guard(lock_);
  const auto await_change = [&] {
    return blocks_.await_change(guard, most_s - seconds_since(begin));
  };
  while (blocks_.frozen())  // another thread switches to counting
    if (!await_change()) return false;
  if (nodes_) nodes_->set_fast(bytes / kGranule);
  budget_.set_limit(nodes_ ? nodes_->for_blocks() : bytes / kGranule,
                    minimum_bytes(thread_count(), transfers_.depth()) / kGranule);
  const auto over = [&] {
    const auto most = budget_.limit() + (placer_ ? placer_->held() : 0);
    return budget_.frames() - std::min(budget_.frames(), most);
  };
  while (over() != 0) {
    if (!blocks_.frozen() && budget_.destroy_free()) continue;
    victims_.want_frames(std::min<std::size_t>(transfers_.depth(), over()));
    if (!await_change()) return false;
  }
  if (nodes_) {
    transitions_.want_all();
    blocks_.changed();
    while (nodes_->is_over())
      if (!await_change()) return false;
    nodes_->begin_peak();
  }
  budget_.begin_peak();
  return true;
}

bool SsdEngine::on_allocate(std::uintptr_t address, std::uint64_t bytes) noexcept {
  EngineLock guard(lock_);
  const auto now = use_.now();
  order_.uses(index_of(address), last_of(address, bytes));
  bool lacking = false;
  for_blocks(address, bytes, [&](BlockIndex index) {
    auto& block = blocks_[index];
    const bool elsewhere = use_.side_by_side() || transitions_.could_be_fast(index, guard);
    if (elsewhere && block.queue == QueueId::dead && !blocks_.frozen())
      transitions_.give_up(index, guard);
    ++block.live;
    ++block.wanted;
    block.discard = false;  // on its way out, and written again before its pages have gone
    block.used = use_.born(now);
    block.made = true;
    block.brief = false;
    if (block.queue == QueueId::evict) victims_.keep(index);
    blocks_.no_longer_idle(index);
    if (use_.side_by_side()) return;
    give_at_once(index, guard);
    const bool waits = block.state == BlockState::empty && block.queue == QueueId::none;
    if (!waits || !budget_.is_full() || use_.streams()) return;
    blocks_.ahead().push(index);
    lacking = true;
  });
  if (lacking) transfers_.wake_reader();
  return true;
}

// What is about to be written gets a free frame at once, or that of a dead block: a fault would
// make the kernel clear a huge page for nothing, in each thread that touches the block, before it
// asks the guard, and a frame from there takes the way through both movers.
void SsdEngine::give_at_once(BlockIndex index, EngineLock& guard) noexcept {
  const auto& block = blocks_[index];
  const auto gives = [&] {
    return block.state == BlockState::empty && block.queue == QueueId::none && !blocks_.frozen() &&
           blocks_.demanded().empty();
  };
  if (nodes_ && gives()) transitions_.fast_at_hand(guard);
  if (gives() && budget_.lacks_frame()) transitions_.reuse_dead(guard);
  if (gives() && budget_.has_free()) transitions_.give(index, guard);
}

// Blocks that another tensor shares keep what they hold, and so does what is still leaving: it may
// be written before its pages have gone.
void SsdEngine::overwrite(std::uintptr_t address, std::uint64_t bytes) noexcept {
  EngineLock guard(lock_);
  if (!transfers_.is_open()) return;
  for_blocks(address, bytes, [&](BlockIndex index) {
    auto& block = blocks_[index];
    block.used = use_.now();
    if (lost_with(index, address, bytes)) forget_lost(index);
    if (block.live != 1 || block.state != BlockState::absent || block.queue == QueueId::demand)
      return;
    blocks_.read_no_more(index);
    block.discard = true;
    transitions_.make_absent_or_empty(block);
    give_at_once(index, guard);
  });
}

// Whether the block is lost with the tensor that lies there: wholly within it, or an end of it in
// which another may have begun since.
bool SsdEngine::lost_with(BlockIndex index, std::uintptr_t address, std::uint64_t bytes) noexcept {
  if (blocks_[index].state != BlockState::lost) return false;
  const auto tensor = blocks_[index].end_of;
  return tensor != 0 ? tensor == address : is_whole(index, address, bytes);
}

bool SsdEngine::is_whole(BlockIndex index, std::uintptr_t address,
                         std::uint64_t bytes) const noexcept {
  const auto begin = arena_ + std::uint64_t{index} * kGranule;
  return begin >= address && begin + kGranule <= address + bytes;
}

void SsdEngine::forget_lost(BlockIndex index) noexcept {
  blocks_[index].end_of = 0;
  transitions_.forget_lost(index);
}

std::uint64_t SsdEngine::discard(std::uintptr_t address, std::uint64_t bytes, Ends ends) noexcept {
  EngineLock guard(lock_);
  std::uint64_t lost = 0;
  for_blocks(address, bytes, [&](BlockIndex index) {
    const auto block = arena_ + std::uint64_t{index} * kGranule;
    const bool begins = block<address, stops = block + kGranule> address + bytes;
    if ((begins && !ends.first) || (stops && !ends.last)) return;
    if (blocks_[index].live != 1 || counting_ || blocks_.frozen()) return;
    if (!transfers_.is_open()) return;  // a child would see the arena
    if (!guard_.can_remake() || !transitions_.lose(index, guard)) return;
    blocks_[index].end_of = begins || stops ? address : 0;
    lost += kGranule;
  });
  return lost;
}

void SsdEngine::refill(std::uintptr_t address, std::uint64_t bytes, const void* source) noexcept {
  EngineLock guard(lock_);
  for_blocks(address, bytes, [&](BlockIndex index) {
    if (!lost_with(index, address, bytes)) return;
    const auto block = arena_ + std::uint64_t{index} * kGranule;
    const auto begin = std::max(block, address), end = std::min(block + kGranule, address + bytes);
    const auto* first = static_cast<const char*>(source) + (begin - address);
    transitions_.refill(index, begin - block, {first, end - begin}, guard);
    if (blocks_[index].state != BlockState::lost) blocks_[index].end_of = 0;
  });
}

void SsdEngine::remake_with(Remaker* remaker) {
  const EngineLock guard(lock_);
  guard_.remake_with(remaker);
}

bool SsdEngine::on_free(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept {
  const EngineLock guard(lock_);
  bool resident = true;
  for_blocks(address, bytes, [&](BlockIndex index) {
    auto& block = blocks_[index];
    if (wanted) --block.wanted;
    --block.live;
    if (lost_with(index, address, bytes)) forget_lost(index);
    if (block.live != 0) return;
    blocks_.no_longer_idle(index);
    if (block.state == BlockState::leaving) block.discard = true;
    blocks_.read_no_more(index);
    if (block.state == BlockState::resident) {
      blocks_.note_dead(index);
      transfers_.release_slot(block);
    } else {
      resident = false;
    }
    if (block.state == BlockState::absent && block.queue == QueueId::none)
      transitions_.make_absent_or_empty(block);
  });
  if (!blocks_.dead().empty()) transfers_.feed();
  if (nodes_) blocks_.changed();
  return resident;
}

void SsdEngine::touch(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const EngineLock guard(lock_);
  const auto now = use_.now();
  order_.uses(index_of(address), last_of(address, bytes));
  for_blocks(address, bytes, [&](BlockIndex index) {
    auto& block = blocks_[index];
    block.used = now;
    block.made = block.brief = false;
    if (block.queue == QueueId::evict && block.wanted != 0) victims_.keep(index);
    if (block.queue == QueueId::spare) blocks_.spare().remove(index);
  });
  if (order_.knows()) transfers_.wake_reader();
}

// Of an op whose order is known nothing has to lie ready: its births are among what is foreseen.
void SsdEngine::begin_oversized_op(std::uint64_t name, bool side_by_side) {
  const EngineLock guard(lock_);
  order_.begin(name, budget_.limit() / 4);
  if (side_by_side || order_.knows()) use_.goes_side_by_side();
  if (transfers_.has_reader()) transfers_.wake_reader();  // it makes room ahead
}

void SsdEngine::transient(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const EngineLock guard(lock_);
  for_blocks(address, bytes, [&](BlockIndex index) { blocks_[index].brief = true; });
}

// Of two nodes the plan says by sink() what belongs below both.
void SsdEngine::demote(std::uintptr_t address, std::uint64_t bytes) noexcept {
  want_no_more(address, bytes, !nodes_);
}

void SsdEngine::sink(std::uintptr_t address, std::uint64_t bytes) noexcept {
  want_no_more(address, bytes, true);
}

void SsdEngine::want_no_more(std::uintptr_t address, std::uint64_t bytes, bool sinks) noexcept {
  const EngineLock guard(lock_);
  for_blocks(address, bytes, [&](BlockIndex index) {
    auto& block = blocks_[index];
    if (--block.wanted != 0) return;
    blocks_.read_no_more(index);
    if (nodes_) nodes_->sinks(index, sinks);
    if (block.state == BlockState::resident && block.live != 0) transitions_.stay_or_leave(index);
  });
  if (nodes_ && !sinks) blocks_.changed();
}

void SsdEngine::release(std::uintptr_t address, std::uint64_t bytes) noexcept {
  if (nodes_) return demote(address, bytes);
  const EngineLock guard(lock_);
  for_blocks(address, bytes, [&](BlockIndex index) {
    auto& block = blocks_[index];
    if (--block.wanted != 0) return;
    blocks_.read_no_more(index);
    if (block.state == BlockState::resident && block.queue == QueueId::none)
      blocks_.spare().push(index);
  });
  if (!blocks_.prefetches().empty()) transfers_.wake_reader();
}

void SsdEngine::promote(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const EngineLock guard(lock_);
  bool queued = false;
  for_blocks(address, bytes, [&](BlockIndex index) {
    auto& block = blocks_[index];
    ++block.wanted;
    block.used = use_.now();
    block.made = block.brief = false;
    if (block.queue == QueueId::evict) victims_.keep(index);
    blocks_.no_longer_idle(index);
    transitions_.want(index);
    if (block.state == BlockState::leaving) block.recalled = true;
    if (block.queue == QueueId::ahead) blocks_.ahead().remove(index);
    if (block.state != BlockState::absent || block.queue != QueueId::none) return;
    blocks_.prefetches().push(index);
    queued = true;
  });
  if (queued) transfers_.wake_reader();
  if (nodes_) blocks_.changed();
}

void SsdEngine::await(std::uintptr_t address, std::uint64_t bytes) noexcept {
  EngineLock guard(lock_);
  for_blocks(address, bytes, [&](BlockIndex index) {
    auto& block = blocks_[index];
    const auto is_there = [&] {  // what is lost comes by refill() alone
      return block.state == BlockState::resident || block.state == BlockState::empty ||
             block.state == BlockState::lost;
    };
    if (is_there()) return;
    stalls_.begin();
    while (!is_there()) {
      if (block.state == BlockState::leaving) block.recalled = true;
      if (block.state == BlockState::absent) transitions_.demand(index);
      blocks_.await_change(guard);
    }
    stalls_.end();
  });
}

// Every resident block is taken out and copied; see FrameCounting.
int SsdEngine::start_counting() noexcept {
  if (counting_ || !loop()->can_count()) return counting_ ? -EALREADY : -EOPNOTSUPP;
  if (const int code = backings_.make_shared(); code != 0) return code;
  if (nodes_)
    if (const int code = backings_.shared().prefer(*node_calls_, slow_node_); code != 0)
      return code;
  EngineLock guard(lock_);
  wait_until_settled(guard);
  if (placer_) placer_->let_go();
  if (blocks_.lost() != 0) {  // or about to be filled
    thaw();
    return -EBUSY;
  }
  guard.unlock();
  const int code = switch_.to_shared();
  guard.lock();
  if (code == 0) {
    counting_ = true;
    backings_.shared().count(true);
    bars_ = false;  // neither the file's mapping is registered for it nor what replaces that
    backings_.pool().arrive(Barred::never);
  }
  thaw();
  return code;
}

int SsdEngine::stop_counting() noexcept {
  if (!counting_) return -EALREADY;
  EngineLock guard(lock_);
  wait_until_settled(guard);
  guard.unlock();
  const int code = switch_.to_moved();
  guard.lock();
  if (code == 0) {
    counting_ = false;
    prefer_slow();
    if (nodes_) transitions_.want_all();
  }
  thaw();
  return code;
}

// What arrives meanwhile is unbarred, and would not be counted.
int SsdEngine::start_barring() noexcept {
  if (!bars_) return -EOPNOTSUPP;
  EngineLock guard(lock_);
  wait_until_settled(guard);
  backings_.pool().arrive(Barred::stays);
  thaw();
  return 0;
}

void SsdEngine::stop_barring() noexcept {
  if (!bars_) return;
  backings_.pool().arrive(Barred::on_its_way);
  loop()->unbar(arena_, arena_bytes_);
}

void SsdEngine::count_with(CountFault count, void* source) noexcept {
  guard_.count_with(count, source);
}

// Frames of blocks in which nothing lives, for whoever needs some next.
void SsdEngine::reuse_dead_blocks() noexcept {
  EngineLock guard(lock_);
  wait_until_settled(guard);
  guard.unlock();
  switch_.drop_dead_blocks();
  guard.lock();
  thaw();
}

void SsdEngine::before_fork() noexcept {
  lock_.lock();
  EngineLock guard(lock_, std::adopt_lock);
  wait_until_settled(guard);
  guard.release();
  fork_.before(counting_);
}

void SsdEngine::after_fork_in_parent() noexcept {
  fork_.after_in_parent();
  thaw();
  lock_.unlock();
}

void SsdEngine::after_fork_in_child() noexcept {
  fork_.after_in_child();
  lock_.unlock();
}

void SsdEngine::wait_until_settled(EngineLock& guard) noexcept {
  blocks_.freeze();
  budget_.drop_pieces();
  blocks_.settle(guard);
}

void SsdEngine::thaw() noexcept {
  blocks_.thaw();
  if (fork_.is_child()) return;    // nothing moves in a child
  if (!transfers_.has_reader()) {  // no slow tier, no promoter: frames are there for whoever waited
    EngineLock guard(lock_, std::adopt_lock);
    while (!blocks_.demanded().empty())
      transitions_.start_promotion(blocks_.demanded().front(), guard);
    guard.release();
    return;
  }
  transfers_.wake_reader();
  transfers_.wake_writer();
}

EngineCounters SsdEngine::counters() const {
  const EngineLock guard(lock_);
  EngineCounters counters;
  counters.demand_faults = stalls_.demand_faults();
  counters.stall_us = stalls_.us();
  counters.held_bytes = nodes_ ? nodes_->held(FrameNode::fast) * kGranule : budget_.bytes();
  counters.peak_bytes = nodes_ ? nodes_->peak() * kGranule : budget_.peak_bytes();
  counters.discarded_bytes = transitions_.discarded() * kGranule;
  counters.refilled_bytes = transitions_.refilled() * kGranule;
  transfers_.count(counters);
  if (nodes_) {
    counters.promoted_bytes += nodes_->moved_to(FrameNode::fast) * kGranule;
    counters.demoted_bytes += nodes_->moved_to(FrameNode::slow) * kGranule;
  }
  return counters;
}

}  // namespace sentinel
