// Where a granule's memory comes from: the budget, the device, and whom it is taken from.
#include <algorithm>

#include "base/clock.h"
#include "base/units.h"
#include "engine/gpu/checked.h"
#include "engine/gpu/pool_engine.h"

namespace sentinel::gpu {

std::uint64_t spare_of(std::uint64_t free_bytes) {
  return std::min(std::max(512_MiB, free_bytes / 50), free_bytes / 8);
}

void PoolEngine::no_calls(Guard& guard) {
  while (calling_ > 0 || store_->growing()) driver_.park(freed_, guard);
}

void PoolEngine::drop_surplus(Guard& guard) {
  Chunks surplus;
  for (; chunks_ > budget_ && !free_.empty(); --chunks_) {
    surplus.push_back(free_.back());
    free_.pop_back();
  }
  if (surplus.empty()) return;
  outside(guard, [&] {
    for (const Chunk chunk : surplus) driver_.destroy(chunk);
  });
}

// That there may be, as far as the device has room for more now.
std::uint64_t PoolEngine::most_chunks() {
  const auto free = driver_.free_bytes();
  return std::min({budget_, device_, chunks_ + (free - std::min(free, spare_bytes_)) / granule_});
}

// Whether the device has room for one more than it is going to be asked for. It is asked now and
// then, for others use it, too, and once an op where it has none.
bool PoolEngine::leaves_spare(std::uint64_t promised) {
  constexpr std::uint64_t kBetween = 32;  // chunks
  if (spare_bytes_ == 0) return true;
  const auto now = clock_.load(std::memory_order_relaxed);
  if (unasked_ == 0 && nothing_spare_ != now) {
    const auto told = driver_.free_bytes(), free = told - std::min(told, promised * granule_);
    unasked_ = std::min(kBetween, (free - std::min(free, spare_bytes_)) / granule_);
    if (unasked_ == 0) nothing_spare_ = now;
  }
  if (unasked_ == 0) return false;
  --unasked_;
  return true;
}

// Some, within the budget and what the device has. False: none was made.
bool PoolEngine::make_chunks(Chunks& chunks, std::uint64_t most, Guard& guard) {
  std::uint64_t count = 0;
  while (count < most && chunks_ + count < std::min(budget_, device_) && leaves_spare(count))
    ++count;
  return count > 0 && create(chunks, count, guard);
}

// They count as soon as they are asked for.
bool PoolEngine::create(Chunks& chunks, std::uint64_t count, Guard& guard) {
  const auto before = chunks.size();
  chunks_ += count;
  outside(guard, [&] {
    for (std::uint64_t n = 0; n < count; ++n) {
      const auto made = driver_.create(granule_);
      if (!made) return;
      chunks.push_back(*made);
    }
  });
  const auto made = chunks.size() - before;
  chunks_ -= count - made;
  if (made < count) device_ = chunks_;
  counters_.peak_bytes = std::max(counters_.peak_bytes, chunks_ * granule_);
  return made > 0;
}

// Neighbours that died one after the other are unmapped together.
bool PoolEngine::reuse_dead(std::uint64_t most, bool now, Guard& guard) {
  auto& dead = now ? next_dead() : dead_;
  if (dead.empty()) return false;
  const Index first = dead.front();
  Index count = 0;
  Mark until_now;
  for (; count < most && !dead.empty() && dead.front() == first + count; ++count) {
    Block& b = blocks_[first + count];
    if (!b.mark) b.mark = last_use(b, until_now);
    if (!driver_.done(b.mark.get())) break;
    dead.pop_front();
    b.dead = false;
    b.mark.reset();
    b.state = State::going;
  }
  if (count == 0) return false;
  outside(guard, [&] { driver_.unmap_all(at(first), granule_, count); });
  for (Index index = first; index < first + count; ++index) {
    blocks_[index].state = State::empty;
    free_.push_back(blocks_[index].chunk);
  }
  return true;
}

// Room for so many granules at most, and one at least: `now` or not at all. Waits only while chunks
// are on their way out, or for a place on the host for what has to go that way. The lock may have
// been released.
bool PoolEngine::find_chunks(Chunks& chunks, std::uint64_t most, bool now, Guard& guard) {
  while (true) {
    drop_surplus(guard);
    for (; chunks.size() < most && !free_.empty(); free_.pop_back()) chunks.push_back(free_.back());
    const auto missing = most - chunks.size();
    if (missing == 0 || make_chunks(chunks, missing, guard)) return true;
    if (reuse_dead(missing, now, guard)) continue;
    if (!chunks.empty() || !now) return !chunks.empty();
    Together together;
    while (free_.empty() && under_way_ < waiting_ + most && evict_one(together, guard)) {
    }
    see_off(together);
    if (!free_.empty()) continue;
    if (under_way_ + arriving_ + calling_ == 0)  // of what is spare, or has become free
      return chunks_ < budget_ && create(chunks, 1, guard);
    waiting_ += most;
    wait_for_room(guard);
    waiting_ -= most;
  }
}

// All but the first so many are of no use after all.
void PoolEngine::give_back(Chunks& chunks, std::size_t keep) {
  if (keep == chunks.size()) return;
  free_.insert(free_.end(), chunks.begin() + static_cast<std::ptrdiff_t>(keep), chunks.end());
  chunks.resize(keep);
  driver_.unpark(freed_);
}

void PoolEngine::wait_for_room(Guard& guard) {
  const auto begin = Clock::now();
  if (!ended_) driver_.park(freed_, guard);
  if (ended_) throw ProcessEnds();
  counters_.stall_us += 1e6 * seconds_since(begin);
}

// A place on the host for what has to leave. Waits where its memory is used up; null where nothing
// has to leave any more.
HostStore::Place* PoolEngine::find_place(Guard& guard) {
  have_places(1, guard);
  HostStore::Place* place = try_place();
  if (place != nullptr) return place;
  store_->want(1);
  while ((place = try_place()) == nullptr && free_.empty() && next_dead().empty())
    wait_for_room(guard);
  store_->want(-1);
  driver_.unpark(work_);
  return place;
}

// `sinks`: what will lie there belongs below the host's memory.
HostStore::Place* PoolEngine::try_place(bool sinks) {
  collect_arrivals();
  auto* place = sinks ? store_->take_below() : store_->take();
  if (place != nullptr) return place;
  if (sinks) return store_->take();
  return store_->may_grow() ? nullptr : store_->take_below();
}

// So many with memory, where there may be more of that still.
void PoolEngine::have_places(std::uint64_t count, Guard& guard) {
  while (store_->lacks(count)) store_->grow(count, guard);
}

// What died first, what is a pool's last; then what no plan wants, then what was used longest ago;
// never what the op uses that runs, nor what stays. The lock may be released before it is chosen.
// False: nothing can.
bool PoolEngine::evict_one(Together& together, Guard& guard) {
  if (!next_dead().empty()) return leave(next_dead().front(), nullptr, together), true;
  if (keeps_all_) short_ = true;
  if (keeps_all_ || longest_unused() == by_use_.end()) return false;
  auto* place = try_place();
  if (place == nullptr) {
    see_off(together);
    together = {};
    place = find_place(guard);
  }
  if (place != nullptr && free_.empty() && next_dead().empty())
    if (const auto victim = choose_victim()) return leave(*victim, place, together), true;
  if (place != nullptr) store_->give(place);
  if (!free_.empty()) return true;
  if (next_dead().empty()) return false;
  return leave(next_dead().front(), nullptr, together), true;
}

std::list<PoolEngine::Index>::iterator PoolEngine::longest_unused() {
  return std::ranges::find_if(by_use_, [&](Index index) { return may_go(blocks_[index]); });
}

std::optional<PoolEngine::Index> PoolEngine::choose_victim() {
  if (pager_)
    if (const auto victim = paged_victim(true)) return victim;
  auto victim = std::ranges::find_if(
      by_use_, [&](Index index) { return may_go(blocks_[index]) && blocks_[index].wanted == 0; });
  if (victim == by_use_.end()) victim = longest_unused();
  return victim == by_use_.end() ? std::nullopt : std::optional(*victim);
}

// Who looks at them until this returns finds them `coming`.
void PoolEngine::hold(Index first, const Chunks& chunks, Guard& guard) {
  for (Index n = 0; n < chunks.size(); ++n) {
    Block& b = blocks_[first + n];
    away_ -= b.state == State::absent;
    b.state = State::coming;
    b.chunk = chunks[n];
    b.queued = false;
  }
  outside(guard, [&] { driver_.map_all(at(first), granule_, chunks); });
}

// What has memory and contents may be used, and leave.
void PoolEngine::enter(Index index) {
  Block& b = blocks_[index];
  b.state = State::resident;
  b.place = by_use_.insert(by_use_.end(), index);
  came(index);
}

}  // namespace sentinel::gpu
