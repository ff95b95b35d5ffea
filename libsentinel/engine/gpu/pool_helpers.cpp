// The helper threads: they wait for what leaves, and give its memory away. And what the host
// store's thread calls when the device has moved bytes of a file.
#include <utility>

#include "engine/gpu/pool_engine.h"

namespace sentinel::gpu {

void PoolEngine::wait_for(const Mark& mark, Guard& guard) {
  ++helpers_wait_;
  guard.unlock();
  driver_.synchronize(mark.get());
  guard.lock();
  --helpers_wait_;
}

void PoolEngine::helper() {
  Guard guard(lock_);
  const auto late_may_leave = [this] {
    return !ending_ && room_ && !late_.empty() && !store_->wanted();
  };
  while (true) {
    while (!over_ && departures_.empty() && !arrivals_matter() && !late_may_leave())
      driver_.park(work_, guard);
    if (over_) return;
    if (late_may_leave()) {
      have_places(late_.size(), guard);
      leave_at_last();
    } else if (!departures_.empty()) {
      gone(departures_, guard);
      collect_arrivals();
      fetch_queued(guard);
    } else {
      wait_for(Mark(arrivals_.front().mark), guard);
      collect_arrivals();
    }
    driver_.unpark(freed_);
  }
}

void PoolEngine::end_helper() {
  Guard guard(lock_);
  while (true) {
    while (!over_ && ends_.empty()) driver_.park(work_, guard);
    if (over_) return;
    gone(ends_, guard);
    fetch_queued(guard);
    driver_.unpark(freed_);
  }
}

// Waits for the next, and takes with it the neighbours behind it that are over by then: none where
// copies take longer than unmapping, all that may where that is what takes long.
void PoolEngine::gone(std::deque<Departure>& mine, Guard& guard) {
  const auto take = [&] {
    Departure departure = std::move(mine.front());
    mine.pop_front();
    return departure;
  };
  Departure departure = take();
  wait_for(departure.mark, guard);
  const Index first = departure.index;
  Index count = 0;
  while (has_left(departure)) {
    ++count;
    if (count == neighbours(granule_) || mine.empty()) break;
    if (mine.front().index != first + count) break;
    if (mine.front().mark != departure.mark && !driver_.done(mine.front().mark.get())) break;
    departure = take();
  }
  if (count > 0) let_go(first, count, guard);
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
void PoolEngine::let_go(Index first, Index count, Guard& guard) {
  for (Index index = first; index < first + count; ++index) blocks_[index].state = State::going;
  outside(guard, [&] { driver_.unmap_all(at(first), granule_, count); });
  under_way_ -= count;
  for (Index index = first; index < first + count; ++index) {
    Block& b = blocks_[index];
    free_.push_back(b.chunk);
    b.state = b.live > 0 ? State::absent : State::empty;
    away_ += b.live > 0;
    const bool asked_for = std::exchange(b.queued, false) && b.live > 0;
    if (b.lies == nullptr) continue;
    if (b.live == 0)
      store_->give(std::exchange(b.lies, nullptr));
    else if (store_->memory(b.lies) != nullptr)
      store_->rest(b.lies, index, b.sinks && b.wanted == 0);
    if (asked_for) ask_for(index);
  }
}

void PoolEngine::written(Index index, Guard& guard) {
  if (over_) return;
  blocks_[index].written = false;
  let_go(index, 1, guard);
  fetch_queued(guard);
  driver_.unpark(freed_);
}

void PoolEngine::filled(Index index, Guard& guard) {
  if (over_) return;
  --arriving_;
  store_->give(std::exchange(blocks_[index].lies, nullptr));
  Together together;
  has_come(index, together);
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

}  // namespace sentinel::gpu
