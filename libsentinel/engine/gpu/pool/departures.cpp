// Copies blocks out, waits for their last use, unmaps neighbours together, and recalls blocks in
// time.
#include "engine/gpu/pool/departures.h"

#include <utility>

namespace sentinel::gpu::pool {

Departures::Departures(Driver& driver, Monitor& monitor, Streams& streams, Blocks& blocks,
                       Chunks& chunks, Places& places, FetchQueue& queue, const KeepAll& keep_all)
    : driver_(driver),
      monitor_(monitor),
      streams_(streams),
      blocks_(blocks),
      chunks_(chunks),
      places_(places),
      queue_(queue),
      keep_all_(keep_all) {}

// The copy out waits for all that was launched until now, and for its copy in. Until it is on its
// stream, the departure's mark is that last use.
void Departures::leave(Index index, HostStore::Place* place, Together& together) {
  ChunkBlock& b = blocks_[index];
  if (!b.holds() && place != nullptr) places_.store().give(std::exchange(place, nullptr));
  if (b.live == 0 && !b.mark) b.mark = streams_.last_use(b.mark, together.now);
  Departure departure{index, ++tickets_, b.mark, place};
  void* const memory = b.holds() ? places_.store().memory(place) : nullptr;
  if (b.live > 0) departure.mark = streams_.last_use(b.mark, together.now);
  if (b.holds()) demoted_bytes_ += blocks_.granule();
  blocks_.leave(index);
  b.state = State::leaving;
  b.ticket = departure.ticket;
  b.mark = departure.mark;
  b.lies = place;
  ++under_way_;
  if (memory == nullptr) {
    (place == nullptr ? ends_ : departures_).push_back(departure);
    return monitor_.wake_helpers();
  }
  together.leaving.push_back(std::move(departure));
  if (together.leaving.size() == neighbours(blocks_.granule())) see_off(together);
}

// Few of them together, so that their chunks are free soon.
void Departures::see_off(Together& together) {
  if (together.leaving.empty()) return;
  uncopied_.push_back(std::exchange(together.leaving, {}));
  copy_out();
  monitor_.wake_helpers();
}

void Departures::copy_out() {
  while (!uncopied_.empty() && streams_.has_room(streams_.out())) {
    copy_together(uncopied_.front());
    uncopied_.pop_front();
  }
}

// Their copies out have one event. What was recalled meanwhile is not copied, nor is what
// died.
void Departures::copy_together(std::vector<Departure>& together) {
  std::erase_if(together, [this](const Departure& departure) { return was_recalled(departure); });
  if (together.empty()) return;
  for (const Departure& departure : together) {
    streams_.wait(streams_.out(), departure.mark);
    const ChunkBlock& b = blocks_[departure.index];
    if (!b.holds()) continue;
    streams_.copy(places_.store().memory(b.lies), blocks_.memory(departure.index),
                  blocks_.granule(), streams_.out());
  }
  const Mark copied = streams_.record(streams_.out());
  for (Departure& departure : together) {
    blocks_[departure.index].mark = departure.mark = copied;
    departures_.push_back(std::move(departure));
  }
}

void Departures::die(Index index, Together& together) {
  ChunkBlock& b = blocks_[index];
  b.queued = b.sinks = false;
  if (b.state == State::resident) {
    blocks_.pager().went(index);
    b.ordered = streams_.in_one_order() && (!b.mark || streams_.done(b.mark));
    b.mark = b.ordered && keep_all_.keeps() ? nullptr : streams_.last_use(b.mark, together.now);
    blocks_.die(index);
  } else if (b.state == State::absent || b.state == State::lost) {
    b.state = State::empty;
    blocks_.came_back(true);
    if (b.lies != nullptr) places_.store().give(std::exchange(b.lies, nullptr));
  }
}

// For what waits: what died is not noticed to be over otherwise.
void Departures::let_dead_go(std::uint64_t count) {
  Together together;
  while (!blocks_.dead().empty() && ends_.size() < count)
    leave(blocks_.dead().front(), nullptr, together);
}

// Its chunk is still in place. Who writes there now spoils the copy, which nobody will read.
// Whoever computes with it waits for what the departure waits for: its copy in, or, of what died,
// its last use. Nobody else does: nothing of it is behind the stream that joins, whose events what
// computes awaits.
void Departures::recall(Index index) {
  ChunkBlock& b = blocks_[index];
  streams_.bring_back(blocks_.at(index), blocks_.granule(), streams_.out(), b.mark);
  b.lies = nullptr;  // it is the departure's
  b.ticket = 0;
  blocks_.enter(index);
}

// The write is not begun, and what used the memory before is over.
bool Departures::take_back(Index index) {
  ChunkBlock& b = blocks_[index];
  if (!places_.store().take_back(b.lies)) return false;
  b.lies = nullptr;
  b.written = b.queued = false;
  --under_way_;
  blocks_.enter(index);
  monitor_.wake_waiting();  // whoever waits for its chunk finds another
  return true;
}

void Departures::copied_gone(Guard& guard) {
  if (!departures_.empty()) return gone(departures_, guard);
  // What fills the stream is the way back of what was recalled.
  if (const Mark oldest = streams_.out().oldest()) monitor_.wait_for(oldest, guard);
  copy_out();
}

// Waits for the next, and takes with it the neighbours behind it that are over by then: none where
// copies take longer than unmapping, all that may where that is what takes long.
void Departures::gone(std::deque<Departure>& mine, Guard& guard) {
  const auto take = [&] {
    Departure departure = std::move(mine.front());
    mine.pop_front();
    return departure;
  };
  Departure departure = take();
  monitor_.wait_for(departure.mark, guard);
  copy_out();  // before the calls that take long
  const Index first = departure.index;
  Index count = 0;
  while (has_left(departure)) {
    ++count;
    if (count == neighbours(blocks_.granule()) || mine.empty()) break;
    if (mine.front().index != first + count) break;
    if (mine.front().mark != departure.mark && !streams_.done(mine.front().mark)) break;
    departure = take();
  }
  if (count > 0) let_go(first, count, guard);
}

bool Departures::was_recalled(const Departure& departure) {
  if (blocks_[departure.index].ticket == departure.ticket) return false;
  --under_way_;
  if (departure.place != nullptr) places_.store().give(departure.place);
  return true;
}

// False: it was recalled, or the device has yet to write it into the file.
bool Departures::has_left(const Departure& departure) {
  if (was_recalled(departure)) return false;
  ChunkBlock& b = blocks_[departure.index];
  b.ticket = 0;
  b.mark.reset();
  const bool below = b.holds() && places_.store().memory(b.lies) == nullptr;
  if (!below) return true;
  b.written = true;
  places_.store().write(b.lies, departure.index, blocks_.memory(departure.index));
  return false;
}

// Nothing uses the memory of these neighbours any more, and its contents lie where they are to lie.
void Departures::let_go(Index first, Index count, Guard& guard) {
  for (Index index = first; index < first + count; ++index) blocks_[index].state = State::going;
  monitor_.outside(guard, [&] { driver_.unmap_all(blocks_.at(first), blocks_.granule(), count); });
  under_way_ -= count;
  for (Index index = first; index < first + count; ++index) {
    ChunkBlock& b = blocks_[index];
    chunks_.put_free(b.chunk);
    b.state = b.holds() ? State::absent : b.live > 0 ? State::lost : State::empty;
    blocks_.went_away(b.live > 0);
    const bool asked_for = std::exchange(b.queued, false) && b.holds();
    if (b.lies == nullptr) continue;
    if (!b.holds())
      places_.store().give(std::exchange(b.lies, nullptr));
    else if (places_.store().memory(b.lies) != nullptr)
      places_.store().rest(b.lies, index, b.sinks && b.wanted == 0);
    if (asked_for) queue_.ask(index);
  }
}

void Departures::written(Index index, Guard& guard) {
  blocks_[index].written = false;
  let_go(index, 1, guard);
}

void Departures::not_filled(Index index, Guard& guard) {
  ++under_way_;
  let_go(index, 1, guard);
}

void Departures::clear() {
  departures_.clear();
  ends_.clear();
  uncopied_.clear();
}

}  // namespace sentinel::gpu::pool
