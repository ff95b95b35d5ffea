// A stream, and how much of its queue on the device the engine knows to be filled. A device's queue
// holds some 1,024 commands; whoever gives it one more waits inside the driver, and would do so
// under the engine's lock. So whoever has much to give asks first whether there is room.
//
// It counts, and calls no driver: Streams does. The engine's lock guards it.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "engine/gpu/pool/block.h"

namespace sentinel::gpu::pool {

class StreamQueue {
 public:
  explicit StreamQueue(Stream stream = nullptr) : stream_(stream) {}
  Stream stream() const { return stream_; }

  // It was given so many commands; then an event, behind all that it was given before.
  void given(std::uint64_t commands = 1) { unmarked_ += commands; }
  void marked(const Mark& mark) {
    parts_.push_back({mark, unmarked_ + 1});
    commands_ += std::exchange(unmarked_, 0) + 1;
  }
  // Commands that may still be in the queue.
  std::uint64_t commands() const { return commands_ + unmarked_; }
  std::uint64_t unmarked() const { return unmarked_; }

  // The oldest of its events that may not have happened yet; null: all have.
  Mark oldest() const { return parts_.empty() ? nullptr : parts_.front().mark; }
  void oldest_has_happened() {
    commands_ -= parts_.front().commands;
    parts_.pop_front();
  }
  // Whether it has just been told to wait for the same: neighbours that came together share a mark.
  bool waits_again(const Mark& mark) { return std::exchange(awaited_, mark) == mark; }
  void forget_marks() {
    parts_.clear();
    awaited_.reset();
  }

 private:
  struct Part {
    Mark mark;
    std::uint64_t commands;
  };

  Stream stream_;
  std::deque<Part> parts_;  // oldest first
  std::uint64_t commands_ = 0, unmarked_ = 0;
  Mark awaited_;  // last
};

}  // namespace sentinel::gpu::pool
