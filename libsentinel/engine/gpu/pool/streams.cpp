// Opens the engine's streams, joins them by events, and remembers all streams that computed.
#include "engine/gpu/pool/streams.h"

#include <algorithm>
#include <utility>

namespace sentinel::gpu::pool {

void Streams::open() {
  for (StreamQueue* queue : {&in_, &out_, &join_}) *queue = StreamQueue(driver_.make_stream());
}

void Streams::synchronize() {
  for (const Mark& end : {all_until_now(), record(in_), record(out_)})
    driver_.synchronize(end.get());
}

void Streams::destroy_events() {
  for (StreamQueue* queue : {&in_, &out_, &join_}) queue->forget_marks();
  computing_.clear();
  for (Event event : events_) driver_.destroy_event(event);
}

void Streams::destroy_streams() {
  for (const StreamQueue* queue : {&in_, &out_, &join_}) driver_.destroy_stream(queue->stream());
}

// For what is launched next. A stream that is new here begins behind all that was launched on
// others until now: what is known of events is known for those. Ops that were given no event for
// long get one: it tells how many of them are over.
void Streams::join() {
  const Stream stream = threads_.here();
  threads_.compute_here();
  if (StreamQueue* queue = computing_on(stream)) {
    note_ops(*queue);
    if (queue->unmarked() >= most_ / 4 + 1) record(*queue);
    return;
  }
  driver_.wait(stream, all_until_now().get());
  computing_.emplace_back(stream);
  computing_.back().given();
}

void Streams::forget(Stream stream) {
  StreamQueue* queue = computing_on(stream);
  if (queue == nullptr) return;
  wait(join_, record(*queue));
  computing_.erase(computing_.begin() + (queue - computing_.data()));
  forgot_ = !computing_.empty();  // else who comes next begins behind it
}

StreamQueue* Streams::computing_on(Stream stream) {
  const auto at = std::ranges::find(computing_, stream, &StreamQueue::stream);
  return at == computing_.end() ? nullptr : &*at;
}

// Each is one kernel at least.
void Streams::note_ops(StreamQueue& queue) {
  const auto now = clock_.load(std::memory_order_relaxed);
  queue.given(now - std::exchange(noted_, now));
}

bool Streams::has_room(StreamQueue& queue, bool demanded) {
  const auto most = demanded ? 2 * most_ : most_;
  if (queue.commands() < most) return true;
  while (const Mark oldest = queue.oldest()) {
    if (!done(oldest)) break;
    queue.oldest_has_happened();
  }
  return queue.commands() < most;
}

Mark Streams::too_far_ahead() {
  if (!has_room(join_, true)) return join_.oldest();
  StreamQueue* queue = computing_on(threads_.here());
  return queue == nullptr || has_room(*queue, true) ? nullptr : queue->oldest();
}

void Streams::copy(void* to, const void* from, std::uint64_t bytes, StreamQueue& queue) {
  driver_.copy(to, from, bytes, queue.stream());
  queue.given();
}

void Streams::copy_here(void* to, const void* from, std::uint64_t bytes) {
  const Stream here = threads_.here();
  driver_.transfer(to, from, bytes, here);
  if (StreamQueue* queue = computing_on(here)) queue->given();
}

void Streams::wait(StreamQueue& queue, const Mark& mark) {
  if (queue.waits_again(mark)) return;
  driver_.wait(queue.stream(), mark.get());
  queue.given();
}

void Streams::bring_back(std::uintptr_t address, std::uint64_t bytes, StreamQueue& queue,
                         Mark& mark) {
  if (!driver_.bring_back(address, bytes, queue.stream())) return;
  queue.given();
  mark = record(queue);
}

void Streams::await(Mark& mark) {
  if (!mark) return;
  const Stream here = threads_.here();
  if (StreamQueue* queue = computing_on(here))
    wait(*queue, mark);
  else
    driver_.wait(here, mark.get());
  if (driver_.done(mark.get())) mark.reset();
}

// Happens when all that was launched until now, and a block's copy in, `its`, are over. For blocks
// without one that is the same, `now`, which a caller with several keeps from one to the next.
// Where one stream computes, its own event tells: the stream that joins is given nothing for that.
Mark Streams::last_use(Mark& its, Mark& now) {
  if (!now) now = all_until_now();
  if (its && driver_.done(its.get())) its.reset();
  if (!its) return now;
  if (one_computes()) wait(join_, now);
  wait(join_, its);
  return record(join_);
}

Mark Streams::all_until_now() {
  if (one_computes()) return record(computing_.front());
  for (StreamQueue& queue : computing_) wait(join_, record(queue));
  return record(join_);
}

Mark Streams::record(StreamQueue& queue) {
  Mark mark = record(queue.stream());
  queue.marked(mark);
  return mark;
}

Mark Streams::record(Stream stream) {
  const Event event = events_.empty() ? driver_.make_event() : events_.back();
  if (!events_.empty()) events_.pop_back();
  Mark mark(event, [this](Event over) { events_.push_back(over); });
  driver_.record(event, stream);
  return mark;
}

}  // namespace sentinel::gpu::pool
