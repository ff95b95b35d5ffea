// The state of every granule of the arena, and queues of granules that need no memory of their own
// (the fault path must not allocate). They decide nothing and touch neither memory nor files.
//
//            give                 take               write done
//   empty ----------> resident ----------> leaving ----------> absent
//     ^                  ^  ^                 |                   |
//     |  freed           |  +---- recalled ---+                   | fetch
//     +------------------+------------------- arriving <----------+
//
// Where the file still has the same bytes (kept_copy.h), a leaving block is absent without a write.
//
// What can be made again may be lost (lose), from resident or absent: then it has neither frame nor
// slot, until it is filled again (refill) or dies.
//
// All fields are guarded by the engine's lock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/frames/backing.h"
#include "engine/io/kept_copy.h"

namespace sentinel {

using EngineLock = std::unique_lock<std::mutex>;  // of the engine's lock, held

enum class BlockState : std::uint8_t { empty, resident, leaving, absent, arriving, lost };
// dead: resident, and nothing lives in it. spare: resident, and no plan wants what lives in it.
// ahead: the op that runs will want it next; prefetch: a plan does.
enum class QueueId : std::uint8_t { none, demand, ahead, prefetch, evict, dead, spare };

constexpr BlockIndex kNoBlock = ~0u;
constexpr std::int64_t kZeros = -2;  // a block of zeros takes no place

struct Neighbours {
  BlockIndex next = kNoBlock, previous = kNoBlock;
};

// Which touch of which op; see stream_order.h.
struct DueTouch {
  std::uint64_t op = ~0ull;
  std::uint32_t touch = 0;
};

struct FrameBlock {
  BlockState state = BlockState::empty;
  QueueId queue = QueueId::none;
  bool recalled = false;      // leaving: somebody waits for it, bring it back
  bool later = false;         // demanded: nobody who waits for it is in turn
  bool discard = false;       // leaving: all that lived in it has died, and nothing new begun
  bool faulted = false;       // not resident: a thread waits in a fault
  bool made = false;          // what lives in it began in the op that used it last
  bool brief = false;         // what lives in it dies in the op that made it
  bool stuck = false;         // could not be taken the last time (pinned): chosen last
  std::uint32_t live = 0;     // tensors that overlap it
  std::uint32_t wanted = 0;   // those that the plan wants in fast memory, and kept borders
  Token token = kNoToken;     // leaving, arriving: the frame
  std::int64_t slot = -1;     // leaving, absent, arriving: its place in the slow tier; or kZeros
                              // resident: where its copy is kept
  KeptCopy copy;              // what the slot holds, where that is known
  std::uintptr_t end_of = 0;  // lost: the tensor, where the block is not wholly within it
  std::uint64_t used = 0;     // when it was last known to be used; larger is later
  std::uint64_t left = 0;     // the op that used it when it had to leave; 0: none
  DueTouch due;               // by StreamOrder
  Neighbours queued;          // in its queue
  std::uint32_t place = 0;    // in the list of resident blocks
};

// A first-in-first-out list through the blocks themselves; a block is in one queue at most. Of
// demanded ones, those for later come behind all others.
class BlockQueue {
 public:
  BlockQueue(std::vector<FrameBlock>& blocks, QueueId id) : blocks_(blocks), id_(id) {}

  bool empty() const { return head_ == kNoBlock; }
  std::size_t size() const { return size_; }
  BlockIndex front() const { return head_; }

  void push(BlockIndex index) {
    auto behind = tail_;
    if (id_ == QueueId::demand && !blocks_[index].later)
      while (behind != kNoBlock && blocks_[behind].later) behind = blocks_[behind].queued.previous;
    insert(index, behind);
  }

  void remove(BlockIndex index) {
    auto& block = blocks_[index];
    (block.queued.previous == kNoBlock ? head_ : blocks_[block.queued.previous].queued.next) =
        block.queued.next;
    (block.queued.next == kNoBlock ? tail_ : blocks_[block.queued.next].queued.previous) =
        block.queued.previous;
    block.queue = QueueId::none;
    --size_;
  }

  BlockIndex pop() {
    const auto index = head_;
    remove(index);
    return index;
  }

 private:
  void insert(BlockIndex index, BlockIndex behind) {
    auto& block = blocks_[index];
    block.queue = id_;
    block.queued.previous = behind;
    block.queued.next = behind == kNoBlock ? head_ : blocks_[behind].queued.next;
    (block.queued.previous == kNoBlock ? head_ : blocks_[block.queued.previous].queued.next) =
        index;
    (block.queued.next == kNoBlock ? tail_ : blocks_[block.queued.next].queued.previous) = index;
    ++size_;
  }

  std::vector<FrameBlock>& blocks_;
  QueueId id_;
  BlockIndex head_ = kNoBlock, tail_ = kNoBlock;
  std::size_t size_ = 0;
};

// All blocks, the lists that name them, and how many of them are on their way.
//
// Invariants, whenever the lock is free: resident() names just the resident blocks; arriving(),
// leaving() and lost() count the blocks in those states. While frozen() holds, no block starts to
// move.
class FrameBlocks {
 public:
  explicit FrameBlocks(std::size_t count);

  FrameBlock& operator[](BlockIndex index) { return blocks_[index]; }
  std::size_t size() const { return blocks_.size(); }
  BlockIndex index_of(const FrameBlock& block) const {
    return static_cast<BlockIndex>(&block - blocks_.data());
  }
  auto begin() const { return blocks_.begin(); }
  auto end() const { return blocks_.end(); }

  BlockQueue& demanded() { return demanded_; }
  BlockQueue& ahead() { return ahead_; }
  BlockQueue& prefetches() { return prefetches_; }
  BlockQueue& evictions() { return evictions_; }
  BlockQueue& dead() { return dead_; }
  BlockQueue& spare() { return spare_; }
  const std::vector<BlockIndex>& resident() const { return resident_; }

  // Neither for a plan nor ahead of the op that runs.
  void read_no_more(BlockIndex) noexcept;
  // What could not be taken the last time is not looked for among the dead.
  void note_dead(BlockIndex) noexcept;
  void no_longer_idle(BlockIndex) noexcept;

  // A change of state keeps the list and the counts right. has_arrived() and has_left() leave the
  // next state to the caller, with the lock held all along.
  void set_resident(BlockIndex) noexcept;
  void unset_resident(BlockIndex) noexcept;
  void set_arriving(BlockIndex) noexcept;
  void set_leaving(BlockIndex) noexcept;
  void has_arrived() noexcept { --arriving_; }
  void has_left() noexcept { --leaving_; }
  void set_lost(FrameBlock& block) noexcept {
    block.state = BlockState::lost;
    ++lost_;
  }
  void is_lost_no_more() noexcept { --lost_; }

  std::size_t arriving() const { return arriving_; }
  std::size_t leaving() const { return leaving_; }
  std::size_t lost() const { return lost_; }
  // Without those that only get another frame.
  std::size_t going() const { return leaving_ - exchanging_; }
  // Blocks whose frames become free: those that leave and those that are to.
  std::size_t under_way() const { return going() + evictions_.size(); }

  // A block is about to leave for another frame / has it, or has left after all.
  void exchange_begins() noexcept { ++exchanging_; }
  void exchange_ends() noexcept { --exchanging_; }
  // A frame is being made, without the lock.
  void making_begins() noexcept { ++making_; }
  void making_ends() noexcept {
    --making_;
    if (frozen_) changed();
  }

  // Nothing moves from then on; settle() waits for what does.
  void freeze() noexcept { frozen_ = true; }
  void settle(EngineLock&) noexcept;
  void thaw() noexcept {
    frozen_ = false;
    changed();
  }
  bool frozen() const { return frozen_; }

  // A block or a frame changed its state.
  void changed() noexcept { settled_.notify_all(); }
  void await_change(EngineLock& guard) noexcept { settled_.wait(guard); }
  // False: the time is over.
  bool await_change(EngineLock& guard, double most_s) noexcept {
    return most_s > 0 && (settled_.wait_for(guard, std::chrono::duration<double>(most_s)) ==
                          std::cv_status::no_timeout);
  }

 private:
  std::vector<FrameBlock> blocks_;
  BlockQueue demanded_, ahead_, prefetches_, evictions_, dead_, spare_;
  std::vector<BlockIndex> resident_;
  std::size_t arriving_ = 0, leaving_ = 0, lost_ = 0, exchanging_ = 0, making_ = 0;
  bool frozen_ = false;
  std::condition_variable settled_;
};

inline FrameBlocks::FrameBlocks(std::size_t count)
    : blocks_(count),
      demanded_(blocks_, QueueId::demand),
      ahead_(blocks_, QueueId::ahead),
      prefetches_(blocks_, QueueId::prefetch),
      evictions_(blocks_, QueueId::evict),
      dead_(blocks_, QueueId::dead),
      spare_(blocks_, QueueId::spare) {
  resident_.reserve(blocks_.size());
}

inline void FrameBlocks::read_no_more(BlockIndex index) noexcept {
  if (blocks_[index].queue == QueueId::prefetch) prefetches_.remove(index);
  if (blocks_[index].queue == QueueId::ahead) ahead_.remove(index);
}

inline void FrameBlocks::note_dead(BlockIndex index) noexcept {
  if (blocks_[index].queue == QueueId::none && !blocks_[index].stuck) dead_.push(index);
}

inline void FrameBlocks::no_longer_idle(BlockIndex index) noexcept {
  if (blocks_[index].queue == QueueId::dead) dead_.remove(index);
  if (blocks_[index].queue == QueueId::spare) spare_.remove(index);
}

inline void FrameBlocks::set_resident(BlockIndex index) noexcept {
  auto& block = blocks_[index];
  block.state = BlockState::resident;
  block.place = static_cast<std::uint32_t>(resident_.size());
  resident_.push_back(index);
}

inline void FrameBlocks::unset_resident(BlockIndex index) noexcept {
  no_longer_idle(index);
  const auto place = blocks_[index].place;
  resident_[place] = resident_.back();
  blocks_[resident_[place]].place = place;
  resident_.pop_back();
}

inline void FrameBlocks::set_arriving(BlockIndex index) noexcept {
  blocks_[index].state = BlockState::arriving;
  ++arriving_;
}

inline void FrameBlocks::set_leaving(BlockIndex index) noexcept {
  blocks_[index].state = BlockState::leaving;
  unset_resident(index);
  ++leaving_;
}

inline void FrameBlocks::settle(EngineLock& guard) noexcept {
  settled_.wait(guard, [this] { return arriving_ == 0 && leaving_ == 0 && making_ == 0; });
}

}  // namespace sentinel
