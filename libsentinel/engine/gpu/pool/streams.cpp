// Opens the engine's streams, joins them by events, and remembers all streams that computed.
#include "engine/gpu/pool/streams.h"

#include <algorithm>

namespace sentinel::gpu::pool {

void Streams::open() {
  for (OwnStream* stream : {&in_, &out_}) stream->open(driver_.make_stream());
  join_ = driver_.make_stream();
}

void Streams::synchronize() {
  for (const Mark& end : {all_until_now(), record(in_), record(out_)})
    driver_.synchronize(end.get());
}

void Streams::destroy_events() {
  for (OwnStream* stream : {&in_, &out_}) stream->forget_marks();
  for (Event event : events_) driver_.destroy_event(event);
}

void Streams::destroy_streams() {
  for (Stream stream : {in_.get(), out_.get(), join_}) driver_.destroy_stream(stream);
}

// For what is launched next. A stream that is new here begins behind all that was launched on
// others until now: what is known of events is known for those.
void Streams::join() {
  const Stream stream = threads_.here();
  threads_.compute_here();
  if (std::ranges::find(computing_, stream) != computing_.end()) return;
  driver_.wait(stream, all_until_now().get());
  computing_.push_back(stream);
}

void Streams::forget(Stream stream) {
  if (std::erase(computing_, stream) == 0) return;
  driver_.wait(join_, record(stream).get());
  forgot_ = !computing_.empty();  // else who comes next begins behind it
}

bool Streams::has_room(OwnStream& stream, bool demanded) {
  const auto most = demanded ? 2 * most_ : most_;
  if (stream.commands() < most) return true;
  while (const Mark oldest = stream.oldest()) {
    if (!done(oldest)) break;
    stream.oldest_has_happened();
  }
  return stream.commands() < most;
}

void Streams::copy(void* to, const void* from, std::uint64_t bytes, OwnStream& stream) {
  driver_.copy(to, from, bytes, stream.get());
  stream.given();
}

void Streams::wait(OwnStream& stream, const Mark& mark) {
  driver_.wait(stream.get(), mark.get());
  stream.given();
}

void Streams::bring_back(std::uintptr_t address, std::uint64_t bytes, OwnStream& stream,
                         Mark& mark) {
  if (!driver_.bring_back(address, bytes, stream.get())) return;
  stream.given();
  mark = record(stream);
}

void Streams::await(Mark& mark) {
  if (!mark) return;
  driver_.wait(threads_.here(), mark.get());
  if (driver_.done(mark.get())) mark.reset();
}

// Happens when all that was launched until now, and a block's copy in, `its`, are over. For blocks
// without one that is the same, `now`, which a caller with several keeps from one to the next.
// Where one stream computes, its own event tells: the stream that joins is given nothing for that.
Mark Streams::last_use(Mark& its, Mark& now) {
  if (!now) now = all_until_now();
  if (its && driver_.done(its.get())) its.reset();
  if (!its) return now;
  if (one_computes()) driver_.wait(join_, now.get());
  driver_.wait(join_, its.get());
  return record(join_);
}

Mark Streams::all_until_now() {
  if (one_computes()) return record(computing_.front());
  for (Stream stream : computing_) driver_.wait(join_, record(stream).get());
  return record(join_);
}

Mark Streams::record(OwnStream& stream) {
  Mark mark = record(stream.get());
  stream.marked(mark);
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
