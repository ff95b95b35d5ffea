// The state of every granule of the arena, and queues of granules that need no memory of their own
// (the fault path must not allocate).
//
//            give                 take               write done
//   empty ----------> resident ----------> leaving ----------> absent
//     ^                  ^  ^                 |                   |
//     |  vacated         |  +---- recalled ---+                   | fetch
//     +------------------+------------------- arriving <----------+
//
// All fields are guarded by the engine's lock.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/frames/backing.h"

namespace sentinel {

enum class BlockState : std::uint8_t { empty, resident, leaving, absent, arriving };
// dead: resident, and nothing lives in it. spare: resident, and no plan wants what lives in it.
// ahead: the op that runs will want it next; prefetch: a plan does.
enum class QueueId : std::uint8_t { none, demand, ahead, prefetch, evict, dead, spare };

constexpr BlockIndex kNoBlock = ~0u;
constexpr std::int64_t kZeros = -2;  // a block of zeros takes no place

struct Block {
  BlockState state = BlockState::empty;
  QueueId queue = QueueId::none;
  bool recalled = false;     // leaving: somebody waits for it, bring it back
  bool discard = false;      // leaving: all that lived in it has died, and nothing new begun
  bool faulted = false;      // not resident: a thread waits in a fault
  bool made = false;         // what lives in it began in the op that used it last
  bool brief = false;        // what lives in it dies in the op that made it
  bool stuck = false;        // could not be taken the last time (pinned): chosen last
  std::uint32_t live = 0;    // tensors that overlap it
  std::uint32_t wanted = 0;  // those that the plan wants in fast memory, and kept borders
  Token token = kNoToken;    // leaving, arriving: the frame
  std::int64_t slot = -1;    // leaving, absent, arriving: its place in the slow tier; or kZeros
  std::uint64_t used = 0;    // when it was last known to be used; larger is later
  std::uint64_t left = 0;    // the op that used it when it had to leave; 0: none
  BlockIndex next = kNoBlock, previous = kNoBlock;  // in its queue
  std::uint32_t place = 0;                          // in the list of resident blocks
};

// A first-in-first-out list through the blocks themselves; a block is in one queue at most.
class BlockQueue {
 public:
  BlockQueue(std::vector<Block>& blocks, QueueId id) : blocks_(blocks), id_(id) {}

  bool empty() const { return head_ == kNoBlock; }
  std::size_t size() const { return size_; }
  BlockIndex front() const { return head_; }

  void push(BlockIndex index) {
    auto& block = blocks_[index];
    block.queue = id_;
    block.next = kNoBlock;
    block.previous = tail_;
    (tail_ == kNoBlock ? head_ : blocks_[tail_].next) = index;
    tail_ = index;
    ++size_;
  }

  void remove(BlockIndex index) {
    auto& block = blocks_[index];
    (block.previous == kNoBlock ? head_ : blocks_[block.previous].next) = block.next;
    (block.next == kNoBlock ? tail_ : blocks_[block.next].previous) = block.previous;
    block.queue = QueueId::none;
    --size_;
  }

  BlockIndex pop() {
    const auto index = head_;
    remove(index);
    return index;
  }

 private:
  std::vector<Block>& blocks_;
  QueueId id_;
  BlockIndex head_ = kNoBlock, tail_ = kNoBlock;
  std::size_t size_ = 0;
};

}  // namespace sentinel
