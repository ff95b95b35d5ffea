// Queues promoted blocks, and fetches them as room comes.
#include "engine/gpu/pool/prefetches.h"

namespace sentinel::gpu::pool {

Prefetches::Prefetches(Monitor& monitor, Blocks& blocks, Places& places, FetchQueue& queue,
                       Departures& departures, Room& room, Arrivals& arrivals)
    : monitor_(monitor),
      blocks_(blocks),
      places_(places),
      queue_(queue),
      departures_(departures),
      room_(room),
      arrivals_(arrivals) {}

void Prefetches::ask_for(Index index) {
  ChunkBlock& b = blocks_[index];
  if (b.live > 0 && !b.holds()) return;  // somebody makes it again
  if (b.state == State::leaving && !b.written) return departures_.recall(index);
  if (b.written && departures_.take_back(index)) return;
  const bool later = b.written || (b.state == State::going && b.holds());
  if ((b.state != State::absent && !later) || b.queued) return;
  if (later)
    b.queued = true;  // the departures see to it once its memory has gone
  else
    queue_.ask(index);
}

// A fault makes all commands worthless that were not begun: the pager gives them again.
void Prefetches::touched(Index index) {
  if (!blocks_.pager().touched(index)) return;
  queue_.drop();
  blocks_.pager().faulted(index);
}

void Prefetches::take_commands() {
  for (std::size_t n = 0; n < kPagerCommands && queue_.size() < kPagerCommands; ++n) {
    const auto next = blocks_.pager().prefetch();
    if (!next) return;
    if (*next < blocks_.size() && blocks_[*next].live > 0) ask_for(*next);
  }
}

// Neighbours that are next in the queue are mapped together, as far as there are chunks for them.
void Prefetches::fetch(Guard& guard) {
  const HostStore& store = places_.store();
  if (monitor_.program_ending() || room_.wanted() || store.wanted()) return;
  if (blocks_.pager().taken()) {
    take_commands();
    room_.make_ahead(guard);
  }
  while (!monitor_.over() && !queue_.empty() && !room_.wanted() && !store.wanted() &&
         arrivals_.may_copy_ahead()) {
    const Index first = queue_.take();
    const ChunkBlock& b = blocks_[first];
    if (!b.queued || b.state != State::absent) continue;
    if (!store.here(b.lies)) {
      places_.store().read(b.lies, false);  // it went down again; once it comes it is queued
      continue;
    }
    Index count = 1;
    while (count < neighbours(blocks_.granule()) && queue_.next_is(first + count) &&
           arrivals_.lies_on_host(first + count - 1) && arrivals_.lies_on_host(first + count)) {
      queue_.take();
      ++count;
    }
    const auto came = arrivals_.fetch(first, count, false, guard);
    for (Index n = count; n-- > came.value_or(0);) queue_.put_back(first + n);
    if (!came) return departures_.let_dead_go(queue_.size());
  }
}

}  // namespace sentinel::gpu::pool
