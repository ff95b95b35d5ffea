#include "engine/gpu/pool_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/failure.h"
#include "base/quiet_thread.h"
#include "base/units.h"
#include "engine/gpu/checked.h"
#include "engine/host/stop.h"

namespace sentinel::gpu {

template <class F>
void PoolEngine::for_blocks(std::uintptr_t address, std::uint64_t bytes, F&& f) {
  const auto [first, past] = blocks_of(address, bytes);
  for (Index index = first; index < past; ++index) f(index);
}

// The first that the range lies in, and one past the last.
std::pair<PoolEngine::Index, PoolEngine::Index> PoolEngine::blocks_of(std::uintptr_t address,
                                                                      std::uint64_t bytes) const {
  if (in_child_ || bytes == 0) return {0, 0};
  const auto begin = address - arena_;
  return {static_cast<Index>(begin / granule_),
          static_cast<Index>((begin + bytes - 1) / granule_ + 1)};
}

PoolEngine::PoolEngine(Driver& driver, const PoolOptions& options) : driver_(driver) {
  alignment_ = kAlignment;
  granule_ = round_up(options.granule_bytes, driver.granularity());
  arena_bytes_ = round_up(options.arena_bytes, granule_);
  blocks_.resize(arena_bytes_ / granule_);
  spare_bytes_ = options.spare_bytes;
  HostStore::Events events;
  events.room = [this] {
    room_ = true;
    driver_.unpark(freed_);
    driver_.unpark(work_);
  };
  events.came = [this](Index index, Guard& guard) {
    if (over_) return;
    if (blocks_[index].queued) queued_.push_back(index);
    fetch_queued(guard);
    driver_.unpark(freed_);
  };
  events.written = [this](Index index, Guard& guard) { written(index, guard); };
  events.filled = [this](Index index, Guard& guard) { filled(index, guard); };
  events.failed = [this](const std::exception& error) {
    checked([&] {
      driver_.free_bytes();  // where the driver is gone, so is the process
      stop_training(in_words(error).c_str());
    });
  };
  events.ended = [this] {
    ended_ = true;
    driver_.unpark(freed_);
  };
  store_ = std::make_unique<HostStore>(driver_, lock_, granule_, options.host, std::move(events));
  arena_ = driver_.reserve(arena_bytes_);
  for (Stream* stream : {&in_, &out_, &join_}) *stream = driver_.make_stream();
  const auto start = [this](void (PoolEngine::*work)()) {
    return quiet_thread([this, work] {
      checked([&] { (this->*work)(); });
      const Guard guard(lock_);  // the driver went first, or the engine does
      ended_ = true;
      driver_.unpark(freed_);
    });
  };
  thread_ = start(&PoolEngine::helper);
  end_thread_ = start(&PoolEngine::end_helper);
}

PoolEngine::~PoolEngine() {
  {
    const Guard guard(lock_);
    over_ = true;
    driver_.unpark(work_);
  }
  thread_.join();
  end_thread_.join();
  store_->stop();
  checked([this] {
    for (const Mark& end : {all_until_now(), record(in_), record(out_)})
      driver_.synchronize(end.get());
    store_.reset();  // and with it the device's own transfers
    for (Index i = 0; i < blocks_.size(); ++i) {
      Block& b = blocks_[i];
      b.mark.reset();
      if (b.state == State::empty || b.state == State::absent) continue;
      driver_.unmap(at(i), granule_);
      free_.push_back(b.chunk);
    }
    departures_.clear();
    ends_.clear();
    arrivals_.clear();
    for (Event event : events_) driver_.destroy_event(event);
    for (Chunk chunk : free_) driver_.destroy(chunk);
    for (Stream stream : {in_, out_, join_}) driver_.destroy_stream(stream);
    driver_.unreserve(arena_, arena_bytes_);
  });
}

// While ops are not told it is here alone that a stream is heard of.
void PoolEngine::compute_on(Stream stream) {
  streams_.set(stream);
  if (!keeps_all_.load(std::memory_order_relaxed) || streams_.computes_here()) return;
  const Guard guard(lock_);
  join();
}

// Nor does anybody wait for copies in then. A sixteenth has to have been free all along.
bool PoolEngine::keep_all(bool keep) noexcept {
  keeps_all_ = short_ = false;
  checked([&] {
    const Guard guard(lock_);
    if (!keep || in_child_ || ending_ || pager_) return;
    collect_arrivals();
    if (away_ + under_way_ + arriving_ + calling_ + arrivals_.size() + late_.size() > 0) return;
    const auto most = most_chunks(), used = std::exchange(most_used_, 0);
    if (used + most / 16 > most) return;
    most_kept_ = most - most / 32;
    keeps_all_ = true;
  });
  return keeps_all_;
}

void PoolEngine::finish() noexcept {
  checked([this] {
    Guard guard(lock_);
    if (in_child_) return;
    const Mark end = record(streams_.here());
    guard.unlock();
    driver_.synchronize(end.get());
    guard.lock();
  });
}

bool PoolEngine::share(int device) {
  Guard guard(lock_);
  no_calls(guard);
  std::vector<std::uintptr_t> mapped;
  for (Index i = 0; i < blocks_.size(); ++i)
    if (blocks_[i].state != State::empty && blocks_[i].state != State::absent)
      mapped.push_back(at(i));
  return driver_.share(device, mapped, granule_);
}

// The libraries' exit handlers would fail what is on its way, and that would end the process as if
// training had. What has begun is waited for, and nothing else begins that nobody waits for. Where
// a library went first nothing comes any more.
void PoolEngine::program_ends() noexcept {
  constexpr auto kPatience = std::chrono::seconds(10);
  Guard guard(lock_);
  if (in_child_) return;
  ending_ = true;
  store_->program_ends();
  freed_.wait_for(guard, kPatience, [this] {
    return ended_ || (under_way_ + arriving_ + calling_ == 0 && !arrivals_matter() &&
                      helpers_wait_ == 0 && !store_->growing());
  });
}

void PoolEngine::forget(Stream stream) {
  const Guard guard(lock_);
  streams_.forget(stream);
  if (in_child_ || std::erase(computing_, stream) == 0) return;
  driver_.wait(join_, record(stream).get());
  forgot_ = !computing_.empty();  // else who comes next begins behind it
}

void PoolEngine::settle() {
  Guard guard(lock_);
  while (under_way_ != 0) driver_.park(freed_, guard);
}

void PoolEngine::set_budget(std::uint64_t bytes) {
  Guard guard(lock_);
  const auto before = std::exchange(budget_, bytes == 0 ? ~0ull : bytes / granule_);
  device_ = ~0ull;  // others may have left it
  unasked_ = 0;
  const auto none_comes = [this] {
    return under_way_ + arriving_ + calling_ == 0 && free_.empty();
  };
  for (drop_surplus(guard); chunks_ > budget_; drop_surplus(guard)) {
    Together together;
    const bool stuck = none_comes() && !evict_one(together, guard) && none_comes();
    see_off(together);
    if (stuck) {
      budget_ = before;
      throw Error(fmt::format("a budget of {} does not hold what the op that runs uses",
                              print_bytes(bytes)));
    }
    if (free_.empty()) driver_.park(freed_, guard);
  }
  counters_.peak_bytes = chunks_ * granule_;
}

// ---------------------------------------------------------------- what the session calls

bool PoolEngine::occupy(std::uintptr_t address, std::uint64_t bytes) noexcept {
  if (in_child_) return false;
  bool fits = true;
  checked([&] {
    Guard guard(lock_);
    const auto [first, past] = blocks_of(address, bytes);
    Index index = first;
    while (fits && index < past) {
      const Index count = make_resident(index, past - index, guard);
      fits = count > 0;
      for (const Index end = index + count; index < end; ++index) {
        Block& b = blocks_[index];
        ++b.live;
        ++b.wanted;
        join();
        use(index);
      }
    }
    note_use();
    Together together;
    for (Index begun = first; !fits && begun < index; ++begun) end(begun, true, together);
    see_off(together);
    fetch_queued(guard);
  });
  return fits;
}

void PoolEngine::note_use() {
  const auto used = chunks_ - free_.size() - dead_.size() - idle_.size();
  most_used_ = std::max(most_used_, used);
  if (keeps_all_ && used > most_kept_) short_ = true;
}

bool PoolEngine::vacate(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept {
  bool mapped = true;
  checked([&] {
    Guard guard(lock_);
    Together together;
    for_blocks(address, bytes, [&](Index index) {
      end(index, wanted, together);
      mapped = mapped && blocks_[index].state == State::resident;
    });
    see_off(together);
    fetch_queued(guard);
  });
  return mapped;
}

// Without a stream: a program may name what an op uses before it names where that computes.
void PoolEngine::touch(std::uintptr_t address, std::uint64_t bytes) noexcept {
  checked([&] {
    const Guard guard(lock_);
    for_blocks(address, bytes, [&](Index index) { use(index); });
  });
}

void PoolEngine::stay(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const Guard guard(lock_);
  for_blocks(address, bytes, [&](Index index) {
    if (blocks_[index].stays++ == 0) went(index);
  });
}

void PoolEngine::may_leave(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const Guard guard(lock_);
  for_blocks(address, bytes, [&](Index index) {
    if (--blocks_[index].stays == 0) came(index);
  });
}

void PoolEngine::hold_pool(std::uintptr_t address, std::uint64_t bytes) noexcept {
  change_pools(address, bytes, 1);
}

void PoolEngine::let_pool_go(std::uintptr_t address, std::uint64_t bytes) noexcept {
  change_pools(address, bytes, -1);
}

void PoolEngine::change_pools(std::uintptr_t address, std::uint64_t bytes, int change) noexcept {
  checked([&] {
    Guard guard(lock_);
    for_blocks(address, bytes, [&](Index index) {
      Block& b = blocks_[index];
      auto& before = dead_beside(b);
      b.pools += static_cast<std::uint32_t>(change);
      auto& after = dead_beside(b);
      if (b.dead && &before != &after) after.splice(after.end(), before, b.place);
    });
    fetch_queued(guard);
  });
}

void PoolEngine::demote(std::uintptr_t address, std::uint64_t bytes) noexcept {
  send_away(address, bytes, false);
}

void PoolEngine::sink(std::uintptr_t address, std::uint64_t bytes) noexcept {
  send_away(address, bytes, true);
}

void PoolEngine::send_away(std::uintptr_t address, std::uint64_t bytes, bool sinks) noexcept {
  checked([&] {
    Guard guard(lock_);
    const auto [first, past] = blocks_of(address, bytes);
    have_places(past - first, guard);
    Together together;
    for_blocks(address, bytes, [&](Index index) {
      Block& b = blocks_[index];
      --b.wanted;
      b.sinks = sinks && b.wanted == 0;  // else by another tensor
      if (b.sinks && b.state == State::absent) store_->sink(b.lies);
      if (launching_.load(std::memory_order_relaxed) && in_use(b))
        keep_for_op(index);
      else if (!leave_unwanted(index, together))
        leave_later(index);
    });
    see_off(together);
  });
}

void PoolEngine::promote(std::uintptr_t address, std::uint64_t bytes) noexcept {
  checked([&] {
    Guard guard(lock_);
    for_blocks(address, bytes, [&](Index index) {
      ++blocks_[index].wanted;
      ask_for(index);
    });
    fetch_queued(guard);
  });
}

void PoolEngine::await(std::uintptr_t address, std::uint64_t bytes) noexcept {
  checked([&] {
    Guard guard(lock_);
    for_blocks(address, bytes, [&](Index index) {
      const Block& b = blocks_[index];
      if (b.live != 0 && b.state == State::absent) ++counters_.demand_faults;
      touched(index);
    });
    if (store_->limited()) ask_for_all(address, bytes, guard);
    const Index past = blocks_of(address, bytes).second;
    for_blocks(address, bytes, [&](Index index) {
      Block& b = blocks_[index];
      while (b.live != 0 && b.state != State::resident) {
        if (on_its_way(index, guard)) continue;
        Index count = 1;
        while (count < neighbours(granule_) && index + count < past && lies_on_host(index) &&
               lies_on_host(index + count))
          ++count;
        if (b.state == State::empty || !fetch(index, count, true, guard))
          throw Error(fmt::format("an op uses more than the {} of the device's memory that it may",
                                  print_bytes(chunks_ * granule_)));
      }
      if (b.live == 0) return;
      join();
      use(index);
      await_mark(b);
    });
    fetch_queued(guard);
  });
}

// What lies in the file comes at once and not one by one; what has come stays for the op.
void PoolEngine::ask_for_all(std::uintptr_t address, std::uint64_t bytes, Guard& guard) {
  for_blocks(address, bytes, [&](Index index) {
    const Block& b = blocks_[index];
    if (b.live == 0) return;
    use(index);
    if (b.state != State::absent) return;
    if (!store_->here(b.lies))
      store_->read(b.lies, false);
    else if (store_->memory(b.lies) == nullptr)
      fetch(index, 1, true, guard);
  });
}

void PoolEngine::kernel(std::uint64_t hash) noexcept {
  checked([&] {
    const Guard guard(lock_);
    if (!pager_ || in_child_) return;
    if (std::exchange(in_kernel_, true)) pager_->kernel_end();
    pager_->kernel_start(hash);
  });
}

int PoolEngine::start_counting() noexcept { return -EOPNOTSUPP; }
int PoolEngine::stop_counting() noexcept { return -EOPNOTSUPP; }

void PoolEngine::before_fork() noexcept {
  Guard guard(lock_);
  no_calls(guard);
  guard.release();
}
void PoolEngine::after_fork_in_parent() noexcept { lock_.unlock(); }
void PoolEngine::after_fork_in_child() noexcept {
  in_child_ = true;
  lock_.unlock();
}

EngineCounters PoolEngine::counters() const {
  const Guard guard(lock_);
  auto counters = counters_;
  counters.held_bytes = chunks_ * granule_;
  counters.reading = store_->reading();
  counters.writing = store_->writing();
  return counters;
}

}  // namespace sentinel::gpu
