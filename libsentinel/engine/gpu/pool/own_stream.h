// A stream of the engine's own, and how much of its queue it fills. A device's queue holds some
// 1,024 commands; whoever gives it one more waits inside the driver, and would do so under the
// engine's lock. So whoever has much to give asks first whether there is room, and otherwise leaves
// the rest to a helper thread, which waits for the oldest event without the lock.
//
// It counts, and calls no driver: Streams does. The engine's lock guards it.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "engine/gpu/pool/block.h"

namespace sentinel::gpu::pool {

class OwnStream {
 public:
  Stream get() const { return stream_; }
  void open(Stream stream) { stream_ = stream; }

  // It was given a command; then an event, behind all that it was given before.
  void given() { ++unmarked_; }
  void marked(const Mark& mark) {
    parts_.push_back({mark, unmarked_ + 1});
    commands_ += std::exchange(unmarked_, 0) + 1;
  }
  // Commands that may still be in the queue.
  std::uint64_t commands() const { return commands_ + unmarked_; }

  // The oldest of its events that may not have happened yet; null: all have.
  Mark oldest() const { return parts_.empty() ? nullptr : parts_.front().mark; }
  void oldest_has_happened() {
    commands_ -= parts_.front().commands;
    parts_.pop_front();
  }
  void forget_marks() { parts_.clear(); }

 private:
  struct Part {
    Mark mark;
    std::uint64_t commands;
  };

  Stream stream_ = nullptr;
  std::deque<Part> parts_;  // oldest first
  std::uint64_t commands_ = 0, unmarked_ = 0;
};

}  // namespace sentinel::gpu::pool
