#include "execute/gpu/pool_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/quiet_thread.h"
#include "base/units.h"
#include "execute/gpu/checked.h"
#include "execute/stop.h"

namespace sentinel::gpu {

template <class F>
void PoolEngine::for_blocks(std::uintptr_t address, std::uint64_t bytes, F&& f) {
  if (in_child_ || bytes == 0) return;
  const auto first = (address - arena_) / granule_,
             last = (address - arena_ + bytes - 1) / granule_;
  for (auto index = first; index <= last; ++index) f(static_cast<Index>(index));
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
      stop_training(error.what());
    });
  };
  events.ended = [this] {
    ended_ = true;
    driver_.unpark(freed_);
  };
  store_ = std::make_unique<HostStore>(driver_, lock_, granule_, options.host, std::move(events));
  arena_ = driver_.reserve(arena_bytes_);
  for (Stream* stream : {&in_, &out_, &join_}) *stream = driver_.make_stream();
  thread_ = quiet_thread([this] {
    checked([this] { helper(); });
    const Guard guard(lock_);  // the driver went first, or the engine does
    ended_ = true;
    driver_.unpark(freed_);
  });
}

PoolEngine::~PoolEngine() {
  {
    const Guard guard(lock_);
    over_ = true;
    driver_.unpark(work_);
  }
  thread_.join();
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
    arrivals_.clear();
    for (Event event : events_) driver_.destroy_event(event);
    for (Chunk chunk : free_) driver_.destroy(chunk);
    for (Stream stream : {in_, out_, join_}) driver_.destroy_stream(stream);
    driver_.unreserve(arena_, arena_bytes_);
  });
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
  const Guard guard(lock_);
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
    return ended_ || (under_way_ + arriving_ == 0 && !arrivals_matter() && !helper_waits_);
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
  const auto none_comes = [this] { return under_way_ == 0 && arriving_ == 0 && free_.empty(); };
  for (drop_surplus(); chunks_ > budget_; drop_surplus()) {
    if (none_comes() && !evict_one(guard) && none_comes()) {
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
  bool fits = !in_child_;
  checked([&] {
    Guard guard(lock_);
    std::vector<Index> begun;
    for_blocks(address, bytes, [&](Index index) {
      if (!fits || !(fits = make_resident(index, guard))) return;
      Block& b = blocks_[index];
      ++b.live;
      ++b.wanted;
      join();
      use(index);
      begun.push_back(index);
    });
    Mark now;
    if (!fits)
      for (Index index : begun) end(index, true, now);
    fetch_queued(guard);
  });
  return fits;
}

bool PoolEngine::vacate(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept {
  bool mapped = true;
  checked([&] {
    Guard guard(lock_);
    Mark now;
    for_blocks(address, bytes, [&](Index index) {
      end(index, wanted, now);
      mapped = mapped && blocks_[index].state == State::resident;
    });
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
    const Guard guard(lock_);
    Mark now;
    for_blocks(address, bytes, [&](Index index) {
      Block& b = blocks_[index];
      --b.wanted;
      b.sinks = sinks && b.wanted == 0;  // else by another tensor
      if (b.sinks && b.state == State::absent) store_->sink(b.lies);
      if (launching_.load(std::memory_order_relaxed) && in_use(b))
        keep_for_op(index);
      else if (!leave_unwanted(index, now))
        leave_later(index);
    });
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
    for_blocks(address, bytes, [&](Index index) {
      Block& b = blocks_[index];
      while (b.live != 0 && b.state != State::resident) {
        if (on_its_way(index, guard)) continue;
        if (b.state == State::empty || !fetch(index, true, guard))
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
      fetch(index, true, guard);
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

void PoolEngine::before_fork() noexcept { lock_.lock(); }
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
