// Blocks that are asked for and lie on the host, or below where the device fetches them itself, in
// the order in which they are to come. Others are read into the host's memory first, and queued
// once they lie there. It fetches nothing.
//
// The engine's lock guards it.
#pragma once

#include <deque>
#include <utility>

#include "engine/gpu/pool/blocks.h"
#include "engine/gpu/pool/places.h"

namespace sentinel::gpu::pool {

class FetchQueue {
 public:
  FetchQueue(Blocks& blocks, Places& places) : blocks_(blocks), places_(places) {}

  void ask(Index);   // what is absent
  void here(Index);  // it can be fetched now, if it is still asked for
  void drop();       // nothing is asked for any more
  Index take();
  void put_back(Index index) { queued_.push_front(index); }
  bool empty() const { return queued_.empty(); }
  std::size_t size() const { return queued_.size(); }
  bool next_is(Index index) const { return !queued_.empty() && queued_.front() == index; }

 private:
  Blocks& blocks_;
  Places& places_;
  std::deque<Index> queued_;
};

inline void FetchQueue::ask(Index index) {
  ChunkBlock& b = blocks_[index];
  b.queued = true;
  places_.store().read(b.lies, false);
  if (places_.store().here(b.lies)) queued_.push_back(index);
}

inline void FetchQueue::here(Index index) {
  if (blocks_[index].queued) queued_.push_back(index);
}

inline void FetchQueue::drop() {
  for (const Index queued : std::exchange(queued_, {})) {
    ChunkBlock& b = blocks_[queued];
    if (std::exchange(b.queued, false) && b.state == State::absent)
      places_.store().withdraw(b.lies);
  }
}

inline Index FetchQueue::take() {
  const Index index = queued_.front();
  queued_.pop_front();
  return index;
}

}  // namespace sentinel::gpu::pool
