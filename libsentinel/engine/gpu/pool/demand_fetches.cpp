// Brings the blocks that the launching op uses, and waits for those that are on their way.
#include "engine/gpu/pool/demand_fetches.h"

#include <fmt/format.h>

#include <utility>

#include "base/units.h"

namespace sentinel::gpu::pool {

DemandFetches::DemandFetches(Monitor& monitor, Streams& streams, Blocks& blocks, Chunks& chunks,
                             Places& places, Departures& departures, Unwanted& unwanted, Room& room,
                             Arrivals& arrivals)
    : monitor_(monitor),
      streams_(streams),
      blocks_(blocks),
      chunks_(chunks),
      places_(places),
      departures_(departures),
      unwanted_(unwanted),
      room_(room),
      arrivals_(arrivals) {}

void DemandFetches::use(Index index) {
  blocks_.use(index);
  unwanted_.op_runs(blocks_[index].used);
}

void DemandFetches::count_fault(Index index) {
  const ChunkBlock& b = blocks_[index];
  if (b.holds() && b.state == State::absent) ++faults_;
}

// From below into the host's memory, while the calling thread waits.
void DemandFetches::bring_near(Index index, Guard& guard) {
  places_.store().read(blocks_[index].lies, true);
  monitor_.wait_for_room(guard);
}

// What is leaving is recalled; for what comes, or can no longer be recalled, the calling thread
// waits. False: neither.
bool DemandFetches::on_its_way(Index index, Guard& guard) {
  ChunkBlock& b = blocks_[index];
  if (b.state == State::leaving && !b.written) {
    departures_.recall(index);
  } else if (b.state == State::absent && !places_.store().here(b.lies)) {
    bring_near(index, guard);
  } else if (b.written && departures_.take_back(index)) {
    return true;
  } else if (b.written || b.state == State::arriving || b.state == State::coming ||
             b.state == State::going) {
    if (b.state == State::arriving) places_.store().hasten(b.lies);
    monitor_.wait_for_room(guard);
  } else {
    return false;
  }
  return true;
}

Index DemandFetches::make_resident(Index first, Index most, Guard& guard) {
  const ChunkBlock& b = blocks_[first];
  while (b.state != State::resident) {
    if (on_its_way(first, guard)) continue;
    if (b.state == State::absent) {  // with what lives beside it
      if (arrivals_.fetch(first, 1, true, guard)) continue;
      if (b.state == State::absent) places_.store().forgo(b.lies);
      return 0;
    }
    Chunks::List chunks;
    const auto alike = [&, state = b.state](Index count) {  // empty, or lost
      Index n = 0;
      while (n < count && blocks_[first + n].state == state) ++n;
      return n;
    };
    if (!room_.find(chunks, alike(most), true, guard)) return 0;
    const Index count = alike(static_cast<Index>(chunks.size()));
    chunks_.give_back(chunks, count);
    if (count == 0) continue;  // it was another's while the lock was released
    arrivals_.map(first, chunks, guard);
    for (Index index = first; index < first + count; ++index) {
      while (!streams_.has_room(streams_.in(), true)) arrivals_.await_queue(guard);
      Mark& mark = blocks_[index].mark;
      blocks_.enter(index);
      streams_.bring_back(blocks_.at(index), blocks_.granule(), streams_.in(), mark);
      streams_.await(mark);
    }
    return count;
  }
  begin_in(first);
  return 1;
}

// In memory that is there: behind the copy in of what lives beside it, or the last use of what
// died.
void DemandFetches::begin_in(Index index) {
  ChunkBlock& b = blocks_[index];
  const bool dead = std::exchange(b.dead, false);
  if (dead && b.ordered) b.mark.reset();
  streams_.await(b.mark);
  if (dead) blocks_.revive(index);
}

void DemandFetches::begin(Index index) {
  ChunkBlock& b = blocks_[index];
  ++b.live;
  ++b.wanted;
  streams_.join();
  use(index);
}

// What lies in the file comes at once and not one by one; what has come stays for the op.
void DemandFetches::ask_for_all(Index first, Index past, Guard& guard) {
  for (Index index = first; index < past; ++index) {
    const ChunkBlock& b = blocks_[index];
    if (!b.holds()) continue;
    use(index);
    if (b.state != State::absent) continue;
    if (!places_.store().here(b.lies))
      places_.store().read(b.lies, false);
    else if (places_.store().memory(b.lies) == nullptr)
      arrivals_.fetch(index, 1, true, guard);
  }
}

void DemandFetches::await(Index index, Index past, Guard& guard) {
  ChunkBlock& b = blocks_[index];
  while (b.holds() && b.state != State::resident) {
    if (on_its_way(index, guard)) continue;
    Index count = 1;
    while (count < neighbours(blocks_.granule()) && index + count < past &&
           arrivals_.lies_on_host(index) && arrivals_.lies_on_host(index + count))
      ++count;
    if (b.state == State::empty || !arrivals_.fetch(index, count, true, guard))
      throw Error(fmt::format("an op uses more than the {} of the device's memory that it may",
                              print_bytes(chunks_.held_bytes())));
  }
  if (!b.holds()) return;
  streams_.join();
  use(index);
  streams_.await(b.mark);
}

}  // namespace sentinel::gpu::pool
