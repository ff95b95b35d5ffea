// Where a granule's memory comes from: the budget, the device, and whom it is taken from.
#include <algorithm>

#include "base/clock.h"
#include "base/units.h"
#include "execute/gpu/checked.h"
#include "execute/gpu/pool_engine.h"

namespace sentinel::gpu {

std::uint64_t spare_of(std::uint64_t free_bytes) {
  return std::min(std::max(512_MiB, free_bytes / 50), free_bytes / 8);
}

void PoolEngine::drop_surplus() {
  for (; chunks_ > budget_ && !free_.empty(); --chunks_) {
    driver_.destroy(free_.back());
    free_.pop_back();
  }
}

// Whether the device has room for one more. It is asked now and then, for others use it, too, and
// once an op where it has none.
bool PoolEngine::leaves_spare() {
  constexpr std::uint64_t kBetween = 32;  // chunks
  if (spare_bytes_ == 0) return true;
  const auto now = clock_.load(std::memory_order_relaxed);
  if (unasked_ == 0 && nothing_spare_ != now) {
    const auto free = driver_.free_bytes();
    unasked_ = std::min(kBetween, (free - std::min(free, spare_bytes_)) / granule_);
    if (unasked_ == 0) nothing_spare_ = now;
  }
  if (unasked_ == 0) return false;
  --unasked_;
  return true;
}

// A new chunk, within what the device has.
bool PoolEngine::make_chunk(Chunk& chunk) {
  const auto made = driver_.create(granule_);
  if (!made) {
    device_ = chunks_;
    return false;
  }
  ++chunks_;
  counters_.peak_bytes = std::max(counters_.peak_bytes, chunks_ * granule_);
  chunk = *made;
  return true;
}

// Room for one granule, `now` or not at all. Waits only while chunks are on their way out, or for a
// place on the host for what has to go that way.
bool PoolEngine::find_chunk(Chunk& chunk, bool now, Guard& guard) {
  while (true) {
    drop_surplus();
    if (!free_.empty()) {
      chunk = free_.back();
      free_.pop_back();
      return true;
    }
    if (chunks_ < std::min(budget_, device_) && leaves_spare() && make_chunk(chunk)) return true;
    auto& dead = now ? next_dead() : dead_;
    if (!dead.empty() && driver_.done(blocks_[dead.front()].mark.get())) {
      const Index index = dead.front();
      Block& b = blocks_[index];
      dead.pop_front();
      b.dead = false;
      driver_.unmap(at(index), granule_);
      b.mark.reset();
      b.state = State::empty;
      free_.push_back(b.chunk);
      continue;
    }
    if (!now) return false;
    while (free_.empty() && under_way_ <= waiting_ && evict_one(guard)) {
    }
    if (!free_.empty()) continue;
    if (under_way_ + arriving_ == 0)  // of what is spare, or has become free
      return chunks_ < budget_ && make_chunk(chunk);
    ++waiting_;
    wait_for_room(guard);
    --waiting_;
  }
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
  return sinks ? store_->take() : store_->take_below();
}

// What died first, what is a pool's last; then what no plan wants, then what was used longest ago;
// never what the op uses that runs, nor what stays. The lock may be released before it is chosen.
// False: nothing can.
bool PoolEngine::evict_one(Guard& guard) {
  Mark now;
  if (!next_dead().empty()) return leave(next_dead().front(), nullptr, now), true;
  if (longest_unused() == by_use_.end()) return false;
  auto* place = find_place(guard);
  if (place != nullptr && free_.empty() && next_dead().empty())
    if (const auto victim = choose_victim()) return leave(*victim, place, now), true;
  if (place != nullptr) store_->give(place);
  if (!free_.empty()) return true;
  if (next_dead().empty()) return false;
  return leave(next_dead().front(), nullptr, now), true;
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

void PoolEngine::hold(Index first, const std::vector<Chunk>& chunks) {
  driver_.map_all(at(first), granule_, chunks);
  for (const Chunk chunk : chunks) {
    Block& b = blocks_[first++];
    b.chunk = chunk;
    b.queued = false;
  }
}

// What has memory and contents may be used, and leave.
void PoolEngine::enter(Index index) {
  Block& b = blocks_[index];
  b.state = State::resident;
  b.place = by_use_.insert(by_use_.end(), index);
  came(index);
}

}  // namespace sentinel::gpu
