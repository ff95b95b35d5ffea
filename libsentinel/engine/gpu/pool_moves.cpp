// How blocks come and go: copies on the engine's streams, ordered by events.
#include <algorithm>
#include <optional>
#include <utility>

#include "engine/gpu/pool_engine.h"

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
  streams_.compute_here();
  if (std::ranges::find(computing_, stream) != computing_.end()) return;
  driver_.wait(stream, all_until_now().get());
  computing_.push_back(stream);
}

bool PoolEngine::lies_on_host(Index index) const {
  const Block& b = blocks_[index];
  return b.live > 0 && b.state == State::absent && store_->here(b.lies) &&
         store_->memory(b.lies) != nullptr;
}

// Neighbours that lie on the host, or one block that lies below. How many of them come: 0 where the
// first has to be looked at again, for the lock was released; nothing where there is no room.
std::optional<PoolEngine::Index> PoolEngine::fetch(Index first, Index count, bool now,
                                                   Guard& guard) {
  if (!lies_on_host(first)) return fetch_below(first, now, guard);
  Chunks chunks;
  if (!find_chunks(chunks, count, now, guard)) return std::nullopt;
  Index fit = 0;
  while (fit < chunks.size() && lies_on_host(first + fit) && (now || blocks_[first + fit].queued))
    ++fit;
  give_back(chunks, fit);
  if (fit == 0) return 0;
  for (Index n = 0; n < fit; ++n) store_->use(blocks_[first + n].lies);
  hold(first, chunks, guard);
  copy_in(first, fit);
  return fit;
}

std::optional<PoolEngine::Index> PoolEngine::fetch_below(Index index, bool now, Guard& guard) {
  Chunks chunks;
  if (!find_chunks(chunks, 1, now, guard)) return std::nullopt;
  Block& b = blocks_[index];
  const auto lies_below = [&] { return store_->here(b.lies) && store_->memory(b.lies) == nullptr; };
  if (b.state != State::absent || !lies_below()) return give_back(chunks, 0), 0;
  hold(index, chunks, guard);
  if (b.live == 0) return copy_in(index, 1), 1;
  if (!lies_below()) {  // the program ends, and its library is asked no more
    ++under_way_;
    let_go(index, 1, guard);
    return 0;
  }
  counters_.promoted_bytes += granule_;
  b.state = State::arriving;
  ++arriving_;
  store_->fill(b.lies, reinterpret_cast<void*>(at(index)), now);
  return 1;
}

// From the host's memory; their own is in place. What died meanwhile is not copied.
void PoolEngine::copy_in(Index first, Index count) {
  Together together;
  Mark copied;
  for (Index index = first; index < first + count; ++index) {
    Block& b = blocks_[index];
    if (b.live == 0) store_->give(std::exchange(b.lies, nullptr));
    has_come(index, together);
    if (b.lies == nullptr) continue;
    driver_.copy(reinterpret_cast<void*>(at(index)), store_->memory(b.lies), granule_, in_);
    counters_.promoted_bytes += granule_;
  }
  for (Index index = first; index < first + count; ++index) {
    Block& b = blocks_[index];
    if (b.lies == nullptr) continue;
    if (!copied) copied = record(in_);
    b.mark = copied;
    arrivals_.push_back({copied, std::exchange(b.lies, nullptr)});
  }
  if (store_->limited()) driver_.unpark(work_);
}

// It has memory from now on.
void PoolEngine::has_come(Index index, Together& together) {
  Block& b = blocks_[index];
  enter(index);
  if (b.live == 0) die(index, together);  // while it came
  if (!b.late) return;
  room_ = true;
  driver_.unpark(work_);
}

// Fetched as soon as there is room.
void PoolEngine::ask_for(Index index) {
  Block& b = blocks_[index];
  if (b.state == State::leaving && !b.written) return recall(index);
  if (b.written && take_back(index)) return;
  const bool later = b.written || (b.state == State::going && b.live > 0);
  if ((b.state != State::absent && !later) || b.queued) return;
  b.queued = true;
  if (later) return;  // let_go() sees to it
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
  } else if (b.written || b.state == State::arriving || b.state == State::coming ||
             b.state == State::going) {
    if (b.state == State::arriving) store_->hasten(b.lies);
    wait_for_room(guard);
  } else {
    return false;
  }
  return true;
}

// For a tensor that begins in so many granules: how many of the first of them have memory now. 0:
// there is none for the first.
PoolEngine::Index PoolEngine::make_resident(Index first, Index most, Guard& guard) {
  const Block& b = blocks_[first];
  while (b.state != State::resident) {
    if (on_its_way(first, guard)) continue;
    if (b.state == State::absent) {  // with what lives beside it
      if (fetch(first, 1, true, guard)) continue;
      if (b.state == State::absent) store_->forgo(b.lies);
      return 0;
    }
    Chunks chunks;
    const auto empty = [&](Index count) {
      Index n = 0;
      while (n < count && blocks_[first + n].state == State::empty) ++n;
      return n;
    };
    if (!find_chunks(chunks, empty(most), true, guard)) return 0;
    const Index count = empty(static_cast<Index>(chunks.size()));
    give_back(chunks, count);
    if (count == 0) continue;  // it was another's while the lock was released
    hold(first, chunks, guard);
    for (Index index = first; index < first + count; ++index) {
      enter(index);
      if (driver_.bring_back(at(index), granule_, in_)) blocks_[index].mark = record(in_);
      await_mark(blocks_[index]);
    }
    return count;
  }
  begin_in(first);
  return 1;
}

// In memory that is there: behind the copy in of what lives beside it, or the last use of what
// died.
void PoolEngine::begin_in(Index index) {
  Block& b = blocks_[index];
  const bool dead = std::exchange(b.dead, false);
  if (dead && b.ordered) b.mark.reset();
  await_mark(b);
  if (!dead) return;
  by_use_.splice(by_use_.end(), dead_beside(b), b.place);
  came(index);
}

// The copy out waits for all that was launched until now, and for its copy in. `place`: for it, if
// it lives.
void PoolEngine::leave(Index index, HostStore::Place* place, Together& together) {
  Block& b = blocks_[index];
  if (b.live == 0 && !b.mark) b.mark = last_use(b, together.now);
  Departure departure{index, ++tickets_, b.mark, place};
  void* const memory = b.live > 0 ? store_->memory(place) : nullptr;
  if (b.live == 0) {
    (b.dead ? dead_beside(b) : by_use_).erase(b.place);
    b.dead = false;
  } else {
    departure.mark = last_use(b, together.now);
    counters_.demoted_bytes += granule_;
    by_use_.erase(b.place);
  }
  went(index);
  b.state = State::leaving;
  b.ticket = departure.ticket;
  b.mark = departure.mark;
  b.lies = place;
  ++under_way_;
  if (memory == nullptr) {
    (place == nullptr ? ends_ : departures_).push_back(departure);
    return driver_.unpark(work_);
  }
  if (departure.mark != together.before) driver_.wait(out_, departure.mark.get());
  together.before = departure.mark;
  driver_.copy(memory, reinterpret_cast<void*>(at(index)), granule_, out_);
  together.leaving.push_back(std::move(departure));
  if (together.leaving.size() == neighbours(granule_)) see_off(together);
}

// Their copies out have one event: behind few of them, so that their chunks are free soon.
void PoolEngine::see_off(Together& together) {
  if (together.leaving.empty()) return;
  const Mark copied = record(out_);
  for (Departure& departure : together.leaving) {
    blocks_[departure.index].mark = departure.mark = copied;
    departures_.push_back(std::move(departure));
  }
  together.leaving.clear();
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
void PoolEngine::end(Index index, bool wanted, Together& together) {
  Block& b = blocks_[index];
  b.wanted -= wanted ? 1 : 0;
  if (--b.live == 0) return die(index, together);
  if (b.state == State::resident && !in_one_order()) b.mark = last_use(b, together.now);
  if (!in_use(b) && !leave_unwanted(index, together)) leave_later(index);
}

// False: there is no place for it now, or it has to come first.
bool PoolEngine::leave_unwanted(Index index, Together& together) {
  Block& b = blocks_[index];
  if (b.wanted > 0 || b.stays > 0 || ending_) return true;
  b.queued = false;
  if (b.state == State::absent) store_->withdraw(b.lies);
  if (b.state == State::arriving || b.state == State::coming)
    return false;  // has_come() sees to it
  if (b.state != State::resident || b.live == 0) return true;
  if (auto* place = try_place(b.sinks)) return leave(index, place, together), true;
  if (store_->may_grow()) {  // the helper has it grow
    room_ = true;
    driver_.unpark(work_);
  }
  return false;
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
  Together together;
  for (auto count = late_.size(); count > 0; --count) {
    const Index index = late_.front();
    const bool stays = in_use(blocks_[index]);
    if (!stays && !leave_unwanted(index, together)) break;
    late_.pop_front();
    blocks_[index].late = false;
    if (stays) keep_for_op(index);
  }
  see_off(together);
}

// Nothing lives in it any more.
void PoolEngine::die(Index index, Together& together) {
  Block& b = blocks_[index];
  b.queued = b.sinks = false;
  if (b.state == State::resident) {
    went(index);
    b.ordered = in_one_order() && (!b.mark || driver_.done(b.mark.get()));
    b.mark = b.ordered && keeps_all_ ? nullptr : last_use(b, together.now);
    b.dead = true;
    dead_beside(b).splice(dead_beside(b).end(), by_use_, b.place);
  } else if (b.state == State::absent) {
    b.state = State::empty;
    --away_;
    store_->give(std::exchange(b.lies, nullptr));
  }
}

// Neighbours that are next in the queue are mapped together, as far as there are chunks for them.
void PoolEngine::fetch_queued(Guard& guard) {
  if (ending_ || waiting_ > 0 || store_->wanted()) return;  // demand goes first
  if (pager_) {
    take_commands();
    make_room_ahead(guard);
  }
  const auto next = [this] {
    const Index index = queued_.front();
    queued_.pop_front();
    return index;
  };
  while (!over_ && !queued_.empty() && waiting_ == 0 && !store_->wanted()) {
    const Index first = next();
    const Block& b = blocks_[first];
    if (!b.queued || b.state != State::absent) continue;
    if (!store_->here(b.lies)) {
      store_->read(b.lies, false);  // it went down again; once it comes it is queued
      continue;
    }
    Index count = 1;
    while (count < neighbours(granule_) && !queued_.empty() && queued_.front() == first + count &&
           lies_on_host(first + count - 1) && lies_on_host(first + count)) {
      next();
      ++count;
    }
    const auto came = fetch(first, count, false, guard);
    for (Index n = count; n-- > came.value_or(0);) queued_.push_front(first + n);
    if (!came) return let_dead_go(queued_.size());
  }
}

// For what waits: what died is not noticed to be over otherwise.
void PoolEngine::let_dead_go(std::uint64_t count) {
  Together together;
  while (!dead_.empty() && ends_.size() < count) leave(dead_.front(), nullptr, together);
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
