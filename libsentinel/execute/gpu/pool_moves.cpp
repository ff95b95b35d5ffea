// How blocks come and go: copies on the engine's streams, ordered by events; the helper thread.
#include <algorithm>
#include <utility>

#include "execute/gpu/pool_engine.h"

namespace sentinel::gpu {
namespace {

constexpr std::uint64_t kSlotsASlab = 16;

}  // namespace

void PoolEngine::use(Index index) {
  Block& b = blocks_[index];
  join();
  b.used = clock_.load(std::memory_order_relaxed);
  if (b.state == State::resident && b.live > 0) by_use_.splice(by_use_.end(), by_use_, b.place);
}

// A stream that is new here begins behind all that was launched on others until now: what is known
// of events is known for those.
void PoolEngine::join() {
  const Stream stream = here();
  if (std::ranges::find(computing_, stream) != computing_.end()) return;
  Block nothing;
  Event event = last_use(nothing);
  driver_.wait(stream, event);
  give_event(event);
  computing_.push_back(stream);
}

bool PoolEngine::fetch(Index index, bool now, Guard& guard) {
  Chunk chunk;
  if (!find_chunk(chunk, now, guard)) return false;
  Block& b = blocks_[index];
  if (b.state != State::absent) {  // while the lock was released
    free_.push_back(chunk);
    return true;
  }
  hold(index, chunk);
  driver_.copy(reinterpret_cast<void*>(at(index)), b.slot, granule_, in_);
  b.event = take_event();
  driver_.record(b.event, in_);
  counters_.promoted_bytes += granule_;
  return true;
}

// For a tensor that begins.
bool PoolEngine::make_resident(Index index, Guard& guard) {
  Block& b = blocks_[index];
  while (b.state != State::resident) {
    Chunk chunk;
    if (b.state == State::leaving) {
      recall(index);
    } else if (b.state == State::absent) {
      if (!fetch(index, true, guard)) return false;
    } else if (!find_chunk(chunk, true, guard)) {
      return false;
    } else if (b.state == State::empty) {
      hold(index, chunk);
    } else {  // while the lock was released
      free_.push_back(chunk);
    }
  }
  await_event(b);  // the copy in of what lives beside it; the last use of what died
  if (b.dead) by_use_.splice(by_use_.end(), dead_, b.place);
  b.dead = false;
  return true;
}

// The copy out waits for all that was launched until now, and for its copy in.
void PoolEngine::leave(Index index) {
  Block& b = blocks_[index];
  Departure departure{index, ++tickets_, nullptr, nullptr};
  if (b.live == 0) {
    departure.event = b.event;
    (b.dead ? dead_ : by_use_).erase(b.place);
    b.dead = false;
  } else {
    if (b.slot == nullptr) b.slot = take_slot();  // it may be refused: nothing has changed yet
    departure.event = last_use(b);
    driver_.wait(out_, departure.event);
    driver_.copy(b.slot, reinterpret_cast<void*>(at(index)), granule_, out_);
    driver_.record(departure.event, out_);
    departure.slot = b.slot;
    counters_.demoted_bytes += granule_;
    by_use_.erase(b.place);
  }
  b.state = State::leaving;
  b.ticket = departure.ticket;
  b.event = departure.event;
  departures_.push_back(departure);
  ++under_way_;
  work_.notify_one();
}

// Its chunk is still in place. Who writes there now spoils the copy, which nobody will read.
// Whoever computes waits for what the departure waits for: its copy in, or, of what died, its last
// use.
void PoolEngine::recall(Index index) {
  Block& b = blocks_[index];
  driver_.wait(join_, b.event);  // the departure's, as is the slot
  b.event = take_event();
  driver_.record(b.event, join_);
  b.slot = nullptr;
  b.ticket = 0;
  b.state = State::resident;
  b.place = by_use_.insert(by_use_.end(), index);
}

// A tensor ends. What still lives beside it leaves if no plan wants that, and what begins in its
// place waits for its kernels, on whatever stream they are.
void PoolEngine::end(Index index, bool wanted) {
  Block& b = blocks_[index];
  b.wanted -= wanted ? 1 : 0;
  if (--b.live == 0) return die(index);
  if (b.state == State::resident && computing_.size() > 1) b.event = last_use(b);
  if (b.used != clock_.load(std::memory_order_relaxed)) leave_unwanted(index);
}

void PoolEngine::leave_unwanted(Index index) {
  Block& b = blocks_[index];
  if (b.wanted > 0 || b.stays > 0) return;
  b.queued = false;
  if (b.state == State::resident) leave(index);
}

// Nothing lives in it any more.
void PoolEngine::die(Index index) {
  Block& b = blocks_[index];
  b.queued = false;
  if (b.state == State::resident) {
    // Where a copy in still reads the slot, what it brings is of no use any more.
    if (b.slot != nullptr) slots_.push_back(std::exchange(b.slot, nullptr));
    b.event = last_use(b);
    b.dead = true;
    dead_.splice(dead_.end(), by_use_, b.place);
  } else if (b.state == State::absent) {
    slots_.push_back(std::exchange(b.slot, nullptr));
    b.state = State::empty;
  }
}

void PoolEngine::fetch_queued(Guard& guard) {
  while (!queued_.empty() && waiting_ == 0) {  // demand goes first
    const Index index = queued_.front();
    const Block& b = blocks_[index];
    if (b.queued && b.state == State::absent && !fetch(index, false, guard)) return;
    queued_.pop_front();
  }
}

// ---------------------------------------------------------------- the helper thread

void PoolEngine::helper() {
  Guard guard(lock_);
  while (true) {
    work_.wait(guard, [this] { return over_ || !departures_.empty(); });
    if (over_) return;
    Departure departure = departures_.front();
    departures_.pop_front();
    guard.unlock();
    driver_.synchronize(departure.event);
    guard.lock();
    gone(departure);
    give_event(departure.event);
    fetch_queued(guard);
    freed_.notify_all();
  }
}

void PoolEngine::gone(const Departure& departure) {
  --under_way_;
  Block& b = blocks_[departure.index];
  if (b.ticket != departure.ticket) {
    if (departure.slot != nullptr) slots_.push_back(departure.slot);
    return;
  }
  b.ticket = 0;
  b.event = nullptr;
  driver_.unmap(at(departure.index), granule_);
  free_.push_back(b.chunk);
  b.state = b.live > 0 ? State::absent : State::empty;
  if (b.live == 0 && b.slot != nullptr) slots_.push_back(std::exchange(b.slot, nullptr));
}

// ---------------------------------------------------------------- events and slots

// What this thread computes on waits for what the block's event stands for.
void PoolEngine::await_event(Block& b) {
  if (b.event == nullptr) return;
  driver_.wait(here(), b.event);
  if (!b.dead && driver_.done(b.event)) give_event(b.event);
}

// Happens when all that was launched until now, and the block's copy in, are over.
Event PoolEngine::last_use(Block& b) {
  Event event = take_event();
  for (Stream stream : computing_) {
    driver_.record(event, stream);
    driver_.wait(join_, event);
  }
  if (b.event != nullptr) {
    driver_.wait(join_, b.event);
    give_event(b.event);
  }
  driver_.record(event, join_);
  return event;
}

Event PoolEngine::take_event() {
  if (events_.empty()) return driver_.make_event();
  const Event event = events_.back();
  events_.pop_back();
  return event;
}

void PoolEngine::give_event(Event& event) { events_.push_back(std::exchange(event, nullptr)); }

void* PoolEngine::take_slot() {
  if (slots_.empty()) {
    auto* slab = static_cast<char*>(driver_.pin(kSlotsASlab * granule_));
    slabs_.push_back(slab);
    for (std::uint64_t i = 0; i < kSlotsASlab; ++i) slots_.push_back(slab + i * granule_);
  }
  void* slot = slots_.back();
  slots_.pop_back();
  return slot;
}

}  // namespace sentinel::gpu
