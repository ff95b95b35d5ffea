// Maps chunks behind blocks and copies their contents in, or has the device read them from the
// file.
#include "engine/gpu/pool/arrivals.h"

#include <utility>

namespace sentinel::gpu::pool {

Arrivals::Arrivals(Driver& driver, Monitor& monitor, Streams& streams, Blocks& blocks,
                   Chunks& chunks, Places& places, Departures& departures, Unwanted& unwanted,
                   Room& room)
    : driver_(driver),
      monitor_(monitor),
      streams_(streams),
      blocks_(blocks),
      chunks_(chunks),
      places_(places),
      departures_(departures),
      unwanted_(unwanted),
      room_(room) {}

bool Arrivals::lies_on_host(Index index) const {
  const ChunkBlock& b = blocks_[index];
  const HostStore& store = places_.store();
  return b.live > 0 && b.state == State::absent && store.here(b.lies) &&
         store.memory(b.lies) != nullptr;
}

std::optional<Index> Arrivals::fetch(Index first, Index count, bool now, Guard& guard) {
  if (!lies_on_host(first)) return fetch_below(first, now, guard);
  if (now && !streams_.has_room(streams_.in(), true)) return await_queue(guard), 0;
  Chunks::List chunks;
  if (!room_.find(chunks, count, now, guard)) return std::nullopt;
  Index fit = 0;
  while (fit < chunks.size() && lies_on_host(first + fit) && (now || blocks_[first + fit].queued))
    ++fit;
  chunks_.give_back(chunks, fit);
  if (fit == 0) return 0;
  for (Index n = 0; n < fit; ++n) places_.store().use(blocks_[first + n].lies);
  map(first, chunks, guard);
  copy_in(first, fit);
  return fit;
}

std::optional<Index> Arrivals::fetch_below(Index index, bool now, Guard& guard) {
  Chunks::List chunks;
  if (!room_.find(chunks, 1, now, guard)) return std::nullopt;
  ChunkBlock& b = blocks_[index];
  HostStore& store = places_.store();
  const auto lies_below = [&] { return store.here(b.lies) && store.memory(b.lies) == nullptr; };
  if (b.state != State::absent || !lies_below()) return chunks_.give_back(chunks, 0), 0;
  map(index, chunks, guard);
  if (b.live == 0) return copy_in(index, 1), 1;
  if (!lies_below()) {  // the program ends, and its library is asked no more
    departures_.not_filled(index, guard);
    return 0;
  }
  promoted_bytes_ += blocks_.granule();
  b.state = State::arriving;
  blocks_.begins_to_arrive();
  store.fill(b.lies, blocks_.memory(index), now);
  return 1;
}

bool Arrivals::may_copy_ahead() {
  if (streams_.has_room(streams_.in())) return true;
  full_ = true;
  monitor_.wake_helpers();
  return false;
}

void Arrivals::await_queue(Guard& guard) {
  full_ = true;
  monitor_.wake_helpers();
  monitor_.wait_for_room(guard);
}

void Arrivals::drain_queue(Guard& guard) {
  full_ = false;
  if (const Mark oldest = streams_.in().oldest()) monitor_.wait_for(oldest, guard);
}

void Arrivals::map(Index first, const Chunks::List& chunks, Guard& guard) {
  for (Index n = 0; n < chunks.size(); ++n) {
    ChunkBlock& b = blocks_[first + n];
    blocks_.came_back(b.state == State::absent || b.state == State::lost);
    b.state = State::coming;
    b.chunk = chunks[n];
    b.queued = false;
  }
  monitor_.outside(guard, [&] { driver_.map_all(blocks_.at(first), blocks_.granule(), chunks); });
}

// From the host's memory; their own is in place. What died meanwhile is not copied.
void Arrivals::copy_in(Index first, Index count) {
  Together together;
  Mark copied;
  for (Index index = first; index < first + count; ++index) {
    ChunkBlock& b = blocks_[index];
    if (b.live == 0) places_.store().give(std::exchange(b.lies, nullptr));
    has_come(index, together);
    if (b.lies == nullptr) continue;
    streams_.copy(blocks_.memory(index), places_.store().memory(b.lies), blocks_.granule(),
                  streams_.in());
    promoted_bytes_ += blocks_.granule();
  }
  for (Index index = first; index < first + count; ++index) {
    ChunkBlock& b = blocks_[index];
    if (b.lies == nullptr) continue;
    if (!copied) copied = streams_.record(streams_.in());
    b.mark = copied;
    places_.copied_in({copied, std::exchange(b.lies, nullptr)});
  }
  if (places_.store().limited()) monitor_.wake_helpers();
}

// It has memory from now on.
void Arrivals::has_come(Index index, Together& together) {
  ChunkBlock& b = blocks_[index];
  blocks_.enter(index);
  if (b.live == 0) departures_.die(index, together);  // while it came
  if (b.late) unwanted_.room_came();
}

void Arrivals::filled(Index index) {
  blocks_.has_arrived();
  places_.store().give(std::exchange(blocks_[index].lies, nullptr));
  Together together;
  has_come(index, together);
}

}  // namespace sentinel::gpu::pool
