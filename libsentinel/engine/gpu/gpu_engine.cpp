// Joins the engine's parts: locks, picks the blocks of a tensor, and calls the part that acts.
#include "engine/gpu/gpu_engine.h"

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
void GpuEngine::for_blocks(std::uintptr_t address, std::uint64_t bytes, F&& f) {
  const auto [first, past] = blocks_of(address, bytes);
  for (Index index = first; index < past; ++index) f(index);
}

std::pair<GpuEngine::Index, GpuEngine::Index> GpuEngine::blocks_of(std::uintptr_t address,
                                                                   std::uint64_t bytes) const {
  return in_child_ ? std::pair<Index, Index>() : blocks_.of(address, bytes);
}

GpuEngine::GpuEngine(Driver& driver, const PoolOptions& options)
    : driver_(driver),
      monitor_(driver),
      streams_(driver, options.queued, clock_),
      blocks_(round_up(options.granule_bytes, driver.granularity()), options.arena_bytes, clock_),
      chunks_(driver, monitor_, blocks_.granule(), options.spare_bytes, clock_),
      places_(streams_),
      queue_(blocks_, places_),
      departures_(driver, monitor_, streams_, blocks_, chunks_, places_, queue_, keep_all_),
      unwanted_(monitor_, streams_, blocks_, places_, departures_),
      room_(driver, monitor_, streams_, blocks_, chunks_, places_, departures_, keep_all_),
      arrivals_(driver, monitor_, streams_, blocks_, chunks_, places_, departures_, unwanted_,
                room_),
      prefetches_(monitor_, blocks_, places_, queue_, departures_, room_, arrivals_),
      demand_(monitor_, streams_, blocks_, chunks_, places_, departures_, unwanted_, room_,
              arrivals_),
      lost_(monitor_, streams_, blocks_, places_, departures_, demand_, keep_all_),
      helpers_(monitor_, places_, departures_, unwanted_, arrivals_, prefetches_) {
  alignment_ = kAlignment;
  guarded_ = false;
  granule_ = blocks_.granule();
  arena_bytes_ = blocks_.size() * granule_;
  places_.open(std::make_unique<HostStore>(driver_, monitor_.lock(), granule_, options.host,
                                           store_events()));
  arena_ = driver_.reserve(arena_bytes_);
  blocks_.lie_at(arena_);
  streams_.open();
  thread_ = start(&pool::Helpers::see_copies_out);
  end_thread_ = start(&pool::Helpers::see_dead_out);
  queue_thread_ = start(&pool::Helpers::see_queue_drain);
}

HostStore::Events GpuEngine::store_events() {
  HostStore::Events events;
  events.room = [this] { helpers_.has_room(); };
  events.came = [this](Index index, Guard& guard) { helpers_.came_near(index, guard); };
  events.written = [this](Index index, Guard& guard) { helpers_.written(index, guard); };
  events.filled = [this](Index index, Guard& guard) { helpers_.filled(index, guard); };
  events.failed = [this](const std::exception& error) {
    checked([&] {
      driver_.free_bytes();  // where the driver is gone, so is the process
      stop_training(in_words(error).c_str());
    });
  };
  events.ended = [this] {
    monitor_.nothing_comes();
    monitor_.wake_waiting();
  };
  return events;
}

std::thread GpuEngine::start(void (pool::Helpers::*work)()) {
  return quiet_thread([this, work] {
    checked([&] { (helpers_.*work)(); });
    const Guard guard = monitor_.hold();  // the driver went first, or the engine does
    monitor_.nothing_comes();
    monitor_.wake_waiting();
  });
}

GpuEngine::~GpuEngine() {
  {
    const Guard guard = monitor_.hold();
    monitor_.engine_ends();
    monitor_.wake_helpers();
  }
  for (auto* thread : {&thread_, &end_thread_, &queue_thread_}) thread->join();
  places_.store().stop();
  checked([this] {
    streams_.synchronize();
    places_.close();  // and with it the device's own transfers
    for (Index i = 0; i < blocks_.size(); ++i) {
      auto& b = blocks_[i];
      b.mark.reset();
      if (!blocks_.has_memory(i)) continue;
      driver_.unmap(blocks_.at(i), granule_);
      chunks_.put_free(b.chunk);
    }
    departures_.clear();
    places_.drop_arrivals();
    streams_.destroy_events();
    chunks_.destroy_free();
    streams_.destroy_streams();
    driver_.unreserve(arena_, arena_bytes_);
  });
}

// While ops are not told it is here alone that a stream is heard of.
void GpuEngine::compute_on(Stream stream) {
  streams_.threads().set(stream);
  if (!keep_all_.keeps_here() || streams_.threads().computes_here()) return;
  const Guard guard = monitor_.hold();
  streams_.join();
}

// Nor does anybody wait for copies in then.
bool GpuEngine::keep_all(bool keep) noexcept {
  keep_all_.stop();
  checked([&] {
    const Guard guard = monitor_.hold();
    if (!keep || in_child_ || monitor_.program_ending() || blocks_.pager().taken()) return;
    places_.collect_arrivals();
    if (blocks_.away() + departures_.under_way() + blocks_.arriving() + monitor_.calling() +
            places_.arrivals() + unwanted_.count() ==
        0)
      keep_all_.start(chunks_.most_now());
  });
  return keep_all_.keeps();
}

void GpuEngine::finish() noexcept {
  checked([this] {
    Guard guard = monitor_.hold();
    if (in_child_) return;
    const pool::Mark end = streams_.record_here();
    guard.unlock();
    driver_.synchronize(end.get());
    guard.lock();
  });
}

bool GpuEngine::share(int device) {
  Guard guard = monitor_.hold();
  no_calls(guard);
  return driver_.share(device, blocks_.mapped(), granule_);
}

// Before the calling thread launches more: so far ahead of the device its launches would wait soon,
// too, and what else it queues would do so with the lock held.
void GpuEngine::keep_pace(Guard& guard) {
  if (in_child_) return;
  while (const pool::Mark mark = streams_.too_far_ahead()) monitor_.wait_for(mark, guard);
}

void GpuEngine::no_calls(Guard& guard) {
  while (monitor_.calling() > 0 || places_.store().growing()) monitor_.await_room(guard);
}

// The libraries' exit handlers would fail what is on its way, and that would end the process as if
// training had. What has begun is waited for, and nothing else begins that nobody waits for. Where
// a library went first nothing comes any more.
void GpuEngine::program_ends() noexcept {
  constexpr auto kPatience = std::chrono::seconds(10);
  Guard guard = monitor_.hold();
  if (in_child_) return;
  monitor_.program_ends();
  places_.store().program_ends();
  monitor_.await_at_most(kPatience, guard, [this] {
    return monitor_.comes_no_more() ||
           (departures_.under_way() + blocks_.arriving() + monitor_.calling() == 0 &&
            !places_.arrivals_matter() && !monitor_.helpers_wait() && !places_.store().growing());
  });
}

void GpuEngine::forget(Stream stream) {
  const Guard guard = monitor_.hold();
  streams_.threads().forget(stream);
  if (!in_child_) streams_.forget(stream);
}

void GpuEngine::settle() {
  Guard guard = monitor_.hold();
  while (departures_.under_way() != 0) monitor_.await_room(guard);
}

void GpuEngine::set_budget(std::uint64_t bytes) {
  Guard guard = monitor_.hold();
  const auto before = chunks_.limit(bytes == 0 ? ~0ull : bytes / granule_);
  const auto none_comes = [this] {
    return departures_.under_way() + blocks_.arriving() + monitor_.calling() == 0 &&
           !chunks_.any_free();
  };
  for (chunks_.drop_surplus(guard); chunks_.over_budget(); chunks_.drop_surplus(guard)) {
    Together together;
    const bool stuck = none_comes() && !room_.evict_one(together, guard) && none_comes();
    departures_.see_off(together);
    if (stuck) {
      chunks_.restore(before);
      throw Error(fmt::format("a budget of {} does not hold what the op that runs uses",
                              print_bytes(bytes)));
    }
    if (!chunks_.any_free()) monitor_.await_room(guard);
  }
  chunks_.begin_peak();
}

// ---------------------------------------------------------------- what the session calls

bool GpuEngine::on_allocate(std::uintptr_t address, std::uint64_t bytes) noexcept {
  if (in_child_) return false;
  bool fits = true;
  checked([&] {
    Guard guard = monitor_.hold();
    keep_pace(guard);
    const auto [first, past] = blocks_of(address, bytes);
    Index index = first;
    while (fits && index < past) {
      const Index count = demand_.make_resident(index, past - index, guard);
      fits = count > 0;
      for (const Index end = index + count; index < end; ++index) demand_.begin(index);
    }
    keep_all_.note(chunks_.count() - chunks_.free() - blocks_.all_dead());
    Together together;
    for (Index begun = first; !fits && begun < index; ++begun) unwanted_.end(begun, true, together);
    departures_.see_off(together);
    prefetches_.fetch(guard);
  });
  return fits;
}

bool GpuEngine::on_free(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept {
  bool mapped = true;
  checked([&] {
    Guard guard = monitor_.hold();
    Together together;
    for_blocks(address, bytes, [&](Index index) {
      lost_.ends(address, index);
      unwanted_.end(index, wanted, together);
      mapped = mapped && blocks_[index].state == State::resident;
    });
    departures_.see_off(together);
    prefetches_.fetch(guard);
  });
  return mapped;
}

// Without a stream: a program may name what an op uses before it names where that computes.
void GpuEngine::touch(std::uintptr_t address, std::uint64_t bytes) noexcept {
  checked([&] {
    const Guard guard = monitor_.hold();
    for_blocks(address, bytes, [&](Index index) { demand_.use(index); });
  });
}

void GpuEngine::pin(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const Guard guard = monitor_.hold();
  for_blocks(address, bytes, [&](Index index) { blocks_.pin(index); });
}

void GpuEngine::unpin(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const Guard guard = monitor_.hold();
  for_blocks(address, bytes, [&](Index index) { blocks_.unpin(index); });
}

void GpuEngine::hold_pool(std::uintptr_t address, std::uint64_t bytes) noexcept {
  change_pools(address, bytes, 1);
}

void GpuEngine::let_pool_go(std::uintptr_t address, std::uint64_t bytes) noexcept {
  change_pools(address, bytes, -1);
}

void GpuEngine::change_pools(std::uintptr_t address, std::uint64_t bytes, int change) noexcept {
  checked([&] {
    Guard guard = monitor_.hold();
    for_blocks(address, bytes, [&](Index index) { blocks_.change_pools(index, change); });
    prefetches_.fetch(guard);
  });
}

void GpuEngine::demote(std::uintptr_t address, std::uint64_t bytes) noexcept {
  send_away(address, bytes, false);
}

void GpuEngine::sink(std::uintptr_t address, std::uint64_t bytes) noexcept {
  send_away(address, bytes, true);
}

void GpuEngine::send_away(std::uintptr_t address, std::uint64_t bytes, bool sinks) noexcept {
  checked([&] {
    Guard guard = monitor_.hold();
    const auto [first, past] = blocks_of(address, bytes);
    places_.have(past - first, guard);
    Together together;
    for_blocks(address, bytes, [&](Index index) {
      unwanted_.demote(index, sinks, launching_.load(std::memory_order_relaxed), together);
    });
    departures_.see_off(together);
  });
}

void GpuEngine::promote(std::uintptr_t address, std::uint64_t bytes) noexcept {
  checked([&] {
    Guard guard = monitor_.hold();
    for_blocks(address, bytes, [&](Index index) {
      ++blocks_[index].wanted;
      prefetches_.ask_for(index);
    });
    prefetches_.fetch(guard);
  });
}

void GpuEngine::await(std::uintptr_t address, std::uint64_t bytes) noexcept {
  checked([&] {
    Guard guard = monitor_.hold();
    keep_pace(guard);
    for_blocks(address, bytes, [&](Index index) {
      demand_.count_fault(index);
      prefetches_.touched(index);
    });
    const auto [first, past] = blocks_of(address, bytes);
    if (places_.store().limited()) demand_.ask_for_all(first, past, guard);
    for (Index index = first; index < past; ++index) demand_.await(index, past, guard);
    prefetches_.fetch(guard);
  });
}

// What it held may be lost, and memory has to be there.
void GpuEngine::overwrite(std::uintptr_t address, std::uint64_t bytes) noexcept {
  if (!in_child_) lost_.refill(address, bytes, nullptr);
}

std::uint64_t GpuEngine::discard(std::uintptr_t address, std::uint64_t bytes, Ends ends) noexcept {
  return in_child_ ? 0 : lost_.discard(address, bytes, ends, launching_);
}

void GpuEngine::refill(std::uintptr_t address, std::uint64_t bytes, const void* source) noexcept {
  if (!in_child_) lost_.refill(address, bytes, source);
}

void GpuEngine::page(std::unique_ptr<Pager> pager) {
  const Guard guard = monitor_.hold();
  blocks_.page(std::move(pager));
}

void GpuEngine::kernel(std::uint64_t hash) noexcept {
  checked([&] {
    const Guard guard = monitor_.hold();
    if (blocks_.pager().taken() && !in_child_) blocks_.pager().kernel(hash);
  });
}

void GpuEngine::before_fork() noexcept {
  Guard guard = monitor_.hold();
  no_calls(guard);
  guard.release();
}
void GpuEngine::after_fork_in_parent() noexcept { monitor_.lock().unlock(); }
void GpuEngine::after_fork_in_child() noexcept {
  in_child_ = true;
  monitor_.lock().unlock();
}

EngineCounters GpuEngine::counters() const {
  const Guard guard = monitor_.hold();
  return {.demand_faults = demand_.faults(),
          .promoted_bytes = arrivals_.bytes(),
          .demoted_bytes = departures_.bytes(),
          .reading = places_.store().reading(),
          .writing = places_.store().writing(),
          .stall_us = monitor_.stall_us(),
          .discarded_bytes = lost_.discarded_bytes(),
          .refilled_bytes = lost_.refilled_bytes(),
          .held_bytes = chunks_.held_bytes(),
          .peak_bytes = chunks_.peak_bytes()};
}

}  // namespace sentinel::gpu
