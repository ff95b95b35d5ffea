// The engine's own streams, all streams that were ever computed on, and the events that order them.
// It queues waits and copies, and waits for nothing itself. It knows no block.
//
// The engine's lock guards it, but for what each thread says of its own stream (threads()). Marks
// give their events back under the lock, and end before this does.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/gpu/device/thread_streams.h"
#include "engine/gpu/pool/stream_queue.h"

namespace sentinel::gpu::pool {

class Streams {
 public:
  // `most`: commands that may be in the queue of one of the engine's own, ahead of need.
  Streams(Driver& driver, std::uint64_t most, const std::atomic<std::uint64_t>& clock)
      : driver_(driver), most_(most), clock_(clock) {}
  void open();         // makes the engine's own
  void synchronize();  // the calling thread waits for all that they were given
  void destroy_events();
  void destroy_streams();

  ThreadStreams& threads() { return threads_; }
  void join();  // what this thread launches next is computed on its stream
  void forget(Stream);
  // Whether all that is computed runs one after the other.
  bool in_one_order() const { return computing_.size() <= 1 && !forgot_; }

  // What this thread waits for, without the lock, before it gives its stream more: that would soon
  // have to wait in the driver, under the lock. Null: nothing.
  Mark too_far_ahead();

  StreamQueue& in() { return in_; }
  StreamQueue& out() { return out_; }
  // Whether the queue has room for some more. What an op demands may fill twice as much.
  bool has_room(StreamQueue&, bool demanded = false);
  void copy(void* to, const void* from, std::uint64_t bytes, StreamQueue&);
  // On what this thread computes on, which it has joined; wherever the bytes lie.
  void copy_here(void* to, const void* from, std::uint64_t bytes);
  void wait(StreamQueue&, const Mark&);
  // Where the range was sent to the host all the same: what the mark stands for is its way back.
  void bring_back(std::uintptr_t address, std::uint64_t bytes, StreamQueue&, Mark&);

  Mark record(StreamQueue&);
  Mark record_here() { return record(threads_.here()); }
  bool done(const Mark& mark) { return driver_.done(mark.get()); }
  // What this thread computes on waits for what the mark stands for.
  void await(Mark&);
  Mark last_use(Mark& its, Mark& now);
  Mark all_until_now();

 private:
  Mark record(Stream);
  StreamQueue* computing_on(Stream);
  void note_ops(StreamQueue&);
  bool one_computes() const { return computing_.size() == 1 && !forgot_; }

  Driver& driver_;
  const std::uint64_t most_;
  const std::atomic<std::uint64_t>& clock_;
  std::uint64_t noted_ = 0;  // the op until which queues know of kernels
  ThreadStreams threads_;
  std::vector<Event> events_;           // of no use now
  std::vector<StreamQueue> computing_;  // all that were ever computed on
  bool forgot_ = false;                 // one of them, while there were others
  StreamQueue in_, out_, join_;
};

}  // namespace sentinel::gpu::pool
