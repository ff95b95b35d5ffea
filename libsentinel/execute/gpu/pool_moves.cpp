// How blocks come and go: copies on the engine's streams, ordered by events; the helper thread.
#include <algorithm>
#include <utility>

#include "execute/gpu/pool_engine.h"

namespace sentinel::gpu {
void PoolEngine::use(Index index) {
  Block& b = blocks_[index];
  b.used = clock_.load(std::memory_order_relaxed);
  if (kept_ != 0 && kept_ != b.used) {
    kept_ = 0;
    room_ = true;
    driver_.unpark(work_);
  }
  if (b.state == State::resident && b.live > 0) by_use_.splice(by_use_.end(), by_use_, b.place);
}

// For what is launched next. A stream that is new here begins behind all that was launched on
// others until now: what is known of events is known for those.
void PoolEngine::join() {
  const Stream stream = streams_.here();
  if (std::ranges::find(computing_, stream) != computing_.end()) return;
  driver_.wait(stream, all_until_now().get());
  computing_.push_back(stream);
}

// True also where it has to be looked at again.
bool PoolEngine::fetch(Index index, bool now, Guard& guard) {
  Chunk chunk;
  if (!find_chunk(chunk, now, guard)) return false;
  Block& b = blocks_[index];
  if (b.state != State::absent || !store_->here(b.lies)) {  // while the lock was released
    free_.push_back(chunk);
    return true;
  }
  hold(index, {chunk});
  counters_.promoted_bytes += granule_;
  if (store_->memory(b.lies) == nullptr) {
    b.state = State::arriving;
    ++arriving_;
    store_->fill(b.lies, reinterpret_cast<void*>(at(index)), now);
    return true;
  }
  copy_in(index);
  return true;
}

// From the host's memory. Its own is in place.
void PoolEngine::copy_in(Index index) {
  Block& b = blocks_[index];
  enter(index);
  store_->use(b.lies);
  driver_.copy(reinterpret_cast<void*>(at(index)), store_->memory(b.lies), granule_, in_);
  b.mark = record(in_);
  arrivals_.push_back({b.mark, std::exchange(b.lies, nullptr)});
  if (store_->limited()) driver_.unpark(work_);
}

// Fetched as soon as there is room.
void PoolEngine::ask_for(Index index) {
  Block& b = blocks_[index];
  if (b.state == State::leaving && !b.written) return recall(index);
  if (b.written && take_back(index)) return;
  if ((b.state != State::absent && !b.written) || b.queued) return;
  b.queued = true;
  if (b.written) return;
  store_->read(b.lies, false);
  if (store_->here(b.lies)) queued_.push_back(index);
}

// From below into the host's memory, while the calling thread waits.
void PoolEngine::bring_near(Index index, Guard& guard) {
  store_->read(blocks_[index].lies, true);
  wait_for_room(guard);
}

// What is leaving is recalled; for what comes, or can no longer be recalled, the calling thread
// waits. False: neither.
bool PoolEngine::on_its_way(Index index, Guard& guard) {
  Block& b = blocks_[index];
  if (b.state == State::leaving && !b.written) {
    recall(index);
  } else if (b.state == State::absent && !store_->here(b.lies)) {
    bring_near(index, guard);
  } else if (b.written && take_back(index)) {
    return true;
  } else if (b.written || b.state == State::arriving) {
    if (b.state == State::arriving) store_->hasten(b.lies);
    wait_for_room(guard);
  } else {
    return false;
  }
  return true;
}

// For a tensor that begins.
bool PoolEngine::make_resident(Index index, Guard& guard) {
  Block& b = blocks_[index];
  while (b.state != State::resident) {
    Chunk chunk;
    if (on_its_way(index, guard)) continue;
    if (b.state == State::absent) {
      if (!fetch(index, true, guard)) {
        if (b.state == State::absent) store_->forgo(b.lies);
        return false;
      }
    } else if (!find_chunk(chunk, true, guard)) {
      return false;
    } else if (b.state == State::empty) {
      hold(index, {chunk});
      enter(index);
      if (driver_.bring_back(at(index), granule_, in_)) b.mark = record(in_);
    } else {  // while the lock was released
      free_.push_back(chunk);
    }
  }
  const bool dead = std::exchange(b.dead, false);
  if (dead && b.ordered) b.mark.reset();
  await_mark(b);  // the copy in of what lives beside it; the last use of what died
  if (dead) {
    by_use_.splice(by_use_.end(), dead_beside(b), b.place);
    came(index);
  }
  return true;
}

// The copy out waits for all that was launched until now, and for its copy in. `place`: for it, if
// it lives.
void PoolEngine::leave(Index index, HostStore::Place* place, Mark& now) {
  Block& b = blocks_[index];
  Departure departure{index, ++tickets_, nullptr, place};
  if (b.live == 0) {
    departure.mark = b.mark;
    (b.dead ? dead_beside(b) : by_use_).erase(b.place);
    b.dead = false;
  } else {
    departure.mark = last_use(b, now);
    if (void* memory = store_->memory(place); memory != nullptr) {
      driver_.wait(out_, departure.mark.get());
      driver_.copy(memory, reinterpret_cast<void*>(at(index)), granule_, out_);
      departure.mark = record(out_);
    }
    counters_.demoted_bytes += granule_;
    by_use_.erase(b.place);
  }
  went(index);
  b.state = State::leaving;
  b.ticket = departure.ticket;
  b.mark = departure.mark;
  b.lies = place;
  departures_.push_back(departure);
  ++under_way_;
  driver_.unpark(work_);
}

// Its chunk is still in place. Who writes there now spoils the copy, which nobody will read.
// Whoever computes with it waits for what the departure waits for: its copy in, or, of what died,
// its last use. Nobody else does: nothing of it is behind join_, whose events what computes awaits.
void PoolEngine::recall(Index index) {
  Block& b = blocks_[index];
  if (driver_.bring_back(at(index), granule_, out_)) b.mark = record(out_);
  b.lies = nullptr;  // it is the departure's
  b.ticket = 0;
  b.state = State::resident;
  b.place = by_use_.insert(by_use_.end(), index);
  came(index);
}

// The write is not begun, and what used the memory before is over.
bool PoolEngine::take_back(Index index) {
  Block& b = blocks_[index];
  if (!store_->take_back(b.lies)) return false;
  b.lies = nullptr;
  b.written = b.queued = false;
  --under_way_;
  enter(index);
  driver_.unpark(freed_);  // whoever waits for its chunk finds another
  return true;
}

// A tensor ends. What still lives beside it leaves if no plan wants that, and what begins in its
// place waits for its kernels, on whatever stream they are.
void PoolEngine::end(Index index, bool wanted, Mark& now) {
  Block& b = blocks_[index];
  b.wanted -= wanted ? 1 : 0;
  if (--b.live == 0) return die(index, now);
  if (b.state == State::resident && !in_one_order()) b.mark = last_use(b, now);
  if (!in_use(b) && !leave_unwanted(index, now)) leave_later(index);
}

// False: there is no place for it, or it has to come first.
bool PoolEngine::leave_unwanted(Index index, Mark& now) {
  Block& b = blocks_[index];
  if (b.wanted > 0 || b.stays > 0 || ending_) return true;
  b.queued = false;
  if (b.state == State::absent) store_->withdraw(b.lies);
  if (b.state == State::arriving) return false;  // filled() sees to it
  if (b.state != State::resident || b.live == 0) return true;
  auto* place = try_place(b.sinks);
  if (place != nullptr) leave(index, place, now);
  return place != nullptr;
}

// When there is a place, or when somebody needs its chunk.
void PoolEngine::leave_later(Index index) {
  if (!std::exchange(blocks_[index].late, true)) late_.push_back(index);
}

// When an op runs that came after the one that uses it now.
void PoolEngine::keep_for_op(Index index) {
  leave_later(index);
  kept_ = blocks_[index].used;
}

void PoolEngine::leave_at_last() {
  room_ = false;
  Mark now;
  for (auto count = late_.size(); count > 0; --count) {
    const Index index = late_.front();
    const bool stays = in_use(blocks_[index]);
    if (!stays && !leave_unwanted(index, now)) return;
    late_.pop_front();
    blocks_[index].late = false;
    if (stays) keep_for_op(index);
  }
}

// Nothing lives in it any more.
void PoolEngine::die(Index index, Mark& now) {
  Block& b = blocks_[index];
  b.queued = b.sinks = false;
  if (b.state == State::resident) {
    went(index);
    b.mark = last_use(b, now);
    b.ordered = b.mark == now && in_one_order();
    b.dead = true;
    dead_beside(b).splice(dead_beside(b).end(), by_use_, b.place);
  } else if (b.state == State::absent) {
    b.state = State::empty;
    store_->give(std::exchange(b.lies, nullptr));
  }
}

// Neighbours that are next in the queue are mapped together, as far as there are chunks for them.
bool PoolEngine::fetch_neighbours(Guard& guard) {
  const Index first = queued_.front();
  std::vector<Chunk> chunks;
  const auto most = std::min(neighbours(granule_), queued_.size());
  for (Index next = first; chunks.size() < most; ++next) {
    Chunk chunk;
    if (queued_[chunks.size()] != next || !waits_on_host(next)) break;
    if (!find_chunk(chunk, false, guard)) break;
    chunks.push_back(chunk);
  }
  if (chunks.empty()) return false;
  hold(first, chunks);
  counters_.promoted_bytes += chunks.size() * granule_;
  for (std::size_t i = 0; i < chunks.size(); ++i) copy_in(first + static_cast<Index>(i));
  return true;
}

bool PoolEngine::waits_on_host(Index index) const {
  const Block& b = blocks_[index];
  return b.queued && b.state == State::absent && store_->here(b.lies) &&
         store_->memory(b.lies) != nullptr;
}

void PoolEngine::fetch_queued(Guard& guard) {
  if (ending_ || waiting_ > 0 || store_->wanted()) return;  // demand goes first
  if (pager_) {
    take_commands();
    make_room_ahead();
  }
  while (!queued_.empty() && waiting_ == 0 && !store_->wanted()) {
    const Index index = queued_.front();
    const Block& b = blocks_[index];
    if (b.queued && b.state == State::absent) {
      if (!store_->here(b.lies))
        store_->read(b.lies, false);  // it went down again; once it comes it is queued
      else if (!(waits_on_host(index) ? fetch_neighbours(guard) : fetch(index, false, guard)))
        return;
    }
    queued_.pop_front();
  }
}

// ---------------------------------------------------------------- the helper thread

void PoolEngine::helper() {
  Guard guard(lock_);
  const auto late_may_leave = [this] {
    return !ending_ && room_ && !late_.empty() && !store_->wanted();
  };
  const auto wait_for = [&](const Mark& mark) {
    helper_waits_ = true;
    guard.unlock();
    driver_.synchronize(mark.get());
    guard.lock();
    helper_waits_ = false;
  };
  while (true) {
    while (!over_ && departures_.empty() && !arrivals_matter() && !late_may_leave())
      driver_.park(work_, guard);
    if (over_) return;
    if (late_may_leave()) {
      leave_at_last();
    } else if (!departures_.empty()) {
      Departure departure = std::move(departures_.front());
      departures_.pop_front();
      wait_for(departure.mark);
      gone(std::move(departure));
      collect_arrivals();
      fetch_queued(guard);
    } else {
      wait_for(Mark(arrivals_.front().mark));
      collect_arrivals();
    }
    driver_.unpark(freed_);
  }
}

// One that is over, and with it the neighbours behind it that are over by now: none where copies
// take longer than unmapping, all that may where that is what takes long.
void PoolEngine::gone(Departure departure) {
  const Index first = departure.index;
  Index count = 0;
  while (has_left(departure)) {
    ++count;
    if (count == neighbours(granule_) || departures_.empty()) break;
    if (departures_.front().index != first + count) break;
    if (!driver_.done(departures_.front().mark.get())) break;
    departure = std::move(departures_.front());
    departures_.pop_front();
  }
  if (count > 0) let_go(first, count);
}

// False: it was recalled, or the device has yet to write it into the file.
bool PoolEngine::has_left(const Departure& departure) {
  Block& b = blocks_[departure.index];
  if (b.ticket != departure.ticket) {
    --under_way_;
    if (departure.place != nullptr) store_->give(departure.place);
    return false;
  }
  b.ticket = 0;
  b.mark.reset();
  const bool below = b.live > 0 && store_->memory(b.lies) == nullptr;
  if (!below) return true;
  b.written = true;
  store_->write(b.lies, departure.index, reinterpret_cast<void*>(at(departure.index)));
  return false;
}

// Nothing uses the memory of these neighbours any more, and its contents lie where they are to lie.
void PoolEngine::let_go(Index first, Index count) {
  driver_.unmap_all(at(first), granule_, count);
  under_way_ -= count;
  for (Index index = first; index < first + count; ++index) {
    Block& b = blocks_[index];
    free_.push_back(b.chunk);
    b.state = b.live > 0 ? State::absent : State::empty;
    if (b.lies == nullptr) continue;
    if (b.live == 0)
      store_->give(std::exchange(b.lies, nullptr));
    else if (store_->memory(b.lies) != nullptr)
      store_->rest(b.lies, index, b.sinks && b.wanted == 0);
  }
}

void PoolEngine::written(Index index, Guard& guard) {
  if (over_) return;
  Block& b = blocks_[index];
  b.written = false;
  let_go(index, 1);
  if (b.queued) queued_.push_back(index);
  fetch_queued(guard);
  driver_.unpark(freed_);
}

void PoolEngine::filled(Index index, Guard& guard) {
  if (over_) return;
  Block& b = blocks_[index];
  --arriving_;
  store_->give(std::exchange(b.lies, nullptr));
  enter(index);
  Mark now;
  if (b.live == 0) die(index, now);  // while it came
  if (b.late) {
    room_ = true;
    driver_.unpark(work_);
  }
  fetch_queued(guard);
  driver_.unpark(freed_);
}

// Places of what has been copied in.
void PoolEngine::collect_arrivals() {
  while (!arrivals_.empty() && driver_.done(arrivals_.front().mark.get())) {
    store_->give(arrivals_.front().place);
    arrivals_.pop_front();
  }
}

// ---------------------------------------------------------------- events

// What this thread computes on waits for what the block's mark stands for.
void PoolEngine::await_mark(Block& b) {
  if (!b.mark) return;
  driver_.wait(streams_.here(), b.mark.get());
  if (driver_.done(b.mark.get())) b.mark.reset();
}

// Happens when all that was launched until now, and the block's copy in, are over. For blocks
// without one that is the same, `now`, which a caller with several keeps from one to the next.
PoolEngine::Mark PoolEngine::last_use(Block& b, Mark& now) {
  if (!now) now = all_until_now();
  if (b.mark && driver_.done(b.mark.get())) b.mark.reset();
  if (!b.mark) return now;
  driver_.wait(join_, b.mark.get());
  return record(join_);
}

PoolEngine::Mark PoolEngine::all_until_now() {
  for (Stream stream : computing_) driver_.wait(join_, record(stream).get());
  return record(join_);
}

PoolEngine::Mark PoolEngine::record(Stream stream) {
  const Event event = events_.empty() ? driver_.make_event() : events_.back();
  if (!events_.empty()) events_.pop_back();
  Mark mark(event, [this](Event over) { events_.push_back(over); });
  driver_.record(event, stream);
  return mark;
}

}  // namespace sentinel::gpu
