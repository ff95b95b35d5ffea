// Takes free, new, dead or evicted chunks, in this order, until a fetch has enough.
#include "engine/gpu/pool/room.h"

#include <algorithm>

namespace sentinel::gpu::pool {

Room::Room(Driver& driver, Monitor& monitor, Streams& streams, Blocks& blocks, Chunks& chunks,
           Places& places, Departures& departures, KeepAll& keep_all)
    : driver_(driver),
      monitor_(monitor),
      streams_(streams),
      blocks_(blocks),
      chunks_(chunks),
      places_(places),
      departures_(departures),
      keep_all_(keep_all) {}

// Neighbours that died one after the other are unmapped together.
bool Room::reuse_dead(std::uint64_t most, bool now, Guard& guard) {
  auto& dead = now ? blocks_.next_dead() : blocks_.dead();
  if (dead.empty()) return false;
  const Index first = dead.front();
  Index count = 0;
  Mark until_now;
  for (; count < most && !dead.empty() && dead.front() == first + count; ++count) {
    ChunkBlock& b = blocks_[first + count];
    if (!b.mark) b.mark = streams_.last_use(b.mark, until_now);
    if (!streams_.done(b.mark)) break;
    dead.pop_front();
    b.dead = false;
    b.mark.reset();
    b.state = State::going;
  }
  if (count == 0) return false;
  monitor_.outside(guard, [&] { driver_.unmap_all(blocks_.at(first), blocks_.granule(), count); });
  for (Index index = first; index < first + count; ++index) {
    blocks_[index].state = State::empty;
    chunks_.put_free(blocks_[index].chunk);
  }
  return true;
}

bool Room::find(Chunks::List& chunks, std::uint64_t most, bool now, Guard& guard) {
  while (true) {
    chunks_.drop_surplus(guard);
    chunks_.take_free(chunks, most);
    const auto missing = most - chunks.size();
    if (missing == 0 || chunks_.make(chunks, missing, guard)) return true;
    if (reuse_dead(missing, now, guard)) continue;
    if (!chunks.empty() || !now) return !chunks.empty();
    Together together;
    while (!chunks_.any_free() && departures_.under_way() < waiting_ + most &&
           evict_one(together, guard)) {
    }
    departures_.see_off(together);
    if (chunks_.any_free()) continue;
    if (departures_.under_way() + blocks_.arriving() + monitor_.calling() == 0)
      // Of what is spare, or has become free.
      return chunks_.under_budget() && chunks_.create(chunks, 1, guard);
    waiting_ += most;
    monitor_.wait_for_room(guard);
    waiting_ -= most;
  }
}

// A place on the host for what has to leave. Waits where its memory is used up; null where nothing
// has to leave any more.
HostStore::Place* Room::find_place(Guard& guard) {
  places_.have(1, guard);
  HostStore::Place* place = places_.find();
  if (place != nullptr) return place;
  places_.store().want(1);
  while ((place = places_.find()) == nullptr && !chunks_.any_free() && blocks_.none_dead())
    monitor_.wait_for_room(guard);
  places_.store().want(-1);
  monitor_.wake_helpers();
  return place;
}

// What died first, what is a pool's last; then what no plan wants, then what was used longest ago;
// never what the op uses that runs, nor what stays.
bool Room::evict_one(Together& together, Guard& guard) {
  const auto dead_leaves = [&] {
    departures_.leave(blocks_.next_dead().front(), nullptr, together);
    return true;
  };
  if (!blocks_.none_dead()) return dead_leaves();
  if (keep_all_.refuses() || !blocks_.any_may_go()) return false;
  auto* place = places_.find();
  if (place == nullptr) {
    departures_.see_off(together);
    together = {};
    place = find_place(guard);
  }
  if (place != nullptr && !chunks_.any_free() && blocks_.none_dead())
    if (const auto victim = blocks_.choose_victim())
      return departures_.leave(*victim, place, together), true;
  if (place != nullptr) places_.store().give(place);
  if (chunks_.any_free()) return true;
  return !blocks_.none_dead() && dead_leaves();
}

// So that fetches ahead of need do not wait for what leaves.
void Room::make_ahead(Guard& guard) {
  if (!blocks_.pager().pre_evicts()) return;
  const auto ahead = [this] { return std::min(kPagerFreeBlocks, chunks_.most() / 8); };
  const auto is_short = [&] {
    const auto most = chunks_.most();
    return chunks_.free() + blocks_.dead().size() + departures_.under_way() +
               (most - std::min(most, chunks_.count())) <
           ahead();
  };
  if (is_short()) places_.have(ahead(), guard);
  Together together;
  while (is_short()) {
    auto* place = places_.find();
    if (place == nullptr) break;
    const auto victim = blocks_.paged_victim(false);
    if (!victim) {
      places_.store().give(place);
      break;
    }
    departures_.leave(*victim, place, together);
  }
  departures_.see_off(together);
}

}  // namespace sentinel::gpu::pool
