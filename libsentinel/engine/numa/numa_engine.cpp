// Joins the engine's parts: finds a tensor's granules, and queues, awaits or counts them.
#include "engine/numa/numa_engine.h"

#include <cerrno>
#include <utility>

#include "engine/granule.h"

namespace sentinel {
namespace {

// On its way, and somebody wants it. A granule that is leaving comes back when it has left.
bool coming(const Granule& granule) {
  return granule.place == GranuleState::queued_in || granule.place == GranuleState::arriving ||
         (granule.place == GranuleState::leaving && granule.wanted != 0);
}

}  // namespace

NumaEngine::NumaEngine(const NumaEngineOptions& options, std::unique_ptr<NodeCalls> calls)
    : calls_(std::move(calls)),
      addresses_(*calls_, options),
      granules_(addresses_),
      queues_(granules_),
      room_(granules_, queues_, clock_),
      switch_(granules_),
      movers_(lock_, *calls_, granules_, queues_, room_) {
  granule_ = options.granule_bytes;
  arena_bytes_ = options.arena_bytes;
  arena_ = addresses_.begin();
}

// Stops the movers first, then the fault thread.
NumaEngine::~NumaEngine() = default;

void NumaEngine::set_budget(std::uint64_t bytes) {
  Guard guard(lock_);
  room_.set_budget(bytes == 0 ? NodeRoom::kUnlimited : bytes / granule_, guard);
}

bool NumaEngine::on_allocate(std::uintptr_t address, std::uint64_t bytes) noexcept {
  Guard guard(lock_);
  const auto run = addresses_.run_of(address, bytes);
  granules_.occupied(run);
  for (auto i = run.first; i < run.first + run.count; ++i) ++granules_[i].live;  // none is dead now
  const bool fast = !room_.none() && !counting_ && room_.make_for(run, guard);
  for (auto i = run.first; i < run.first + run.count; ++i) granules_[i].wanted += fast;
  if (fast)
    born_fast(run);
  else if (!counting_)
    granules_.for_runs(
        run, [](const Granule& g) { return !counted(g.place); },
        [this](Run part) { granules_.bind(part, false); });
  granules_.touched(run);
  return fast;
}

// There is room for all of it. Where nothing else lives in a granule its old contents are worth
// nothing: pages that are still in slow memory are dropped, which is cheaper than moving them.
void NumaEngine::born_fast(Run run) noexcept {
  for (auto i = run.first; i < run.first + run.count; ++i) {
    queues_.recall(granules_[i]);
    if (granules_[i].place == GranuleState::slow && granules_[i].live > 1) queues_.queue_in(i);
  }
  granules_.for_runs(
      run, [](const Granule& g) { return g.place == GranuleState::slow; },
      [this](Run born) {
        granules_.drop(born);
        granules_.bind(born, true);
        room_.hold(born.count);
        for (auto i = born.first; i < born.first + born.count; ++i)
          granules_[i].place = GranuleState::fast;
      });
}

bool NumaEngine::on_free(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept {
  const Guard guard(lock_);
  const auto run = addresses_.run_of(address, bytes);
  bool fast = true;
  for (auto i = run.first; i < run.first + run.count; ++i) {
    auto& granule = granules_[i];
    --granule.live;
    if (wanted) unwant(i);
    if (granule.live != 0) continue;
    queues_.cancel(granule);
    queues_.recall(granule);
    if (granule.place == GranuleState::fast)
      room_.list_dead(i);
    else
      fast = false;
  }
  if (room_.lacking()) room_.changed();
  return fast;
}

void NumaEngine::demote(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const Guard guard(lock_);
  const auto run = addresses_.run_of(address, bytes);
  for (auto i = run.first; i < run.first + run.count; ++i) unwant(i);
}

void NumaEngine::unwant(GranuleIndex index) noexcept {
  auto& granule = granules_[index];
  if (--granule.wanted != 0) return;
  queues_.cancel(granule);
  if (granule.place == GranuleState::fast && granule.live != 0) queues_.queue_out(index);
}

void NumaEngine::promote(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const Guard guard(lock_);
  const auto run = addresses_.run_of(address, bytes);
  for (auto i = run.first; i < run.first + run.count; ++i) {
    auto& granule = granules_[i];
    ++granule.wanted;
    if (granule.place == GranuleState::slow) queues_.queue_in(i);
    queues_.recall(granule);
  }
}

Arrival NumaEngine::arrival(std::uintptr_t address, std::uint64_t bytes) const noexcept {
  const Guard guard(lock_);
  const auto run = addresses_.run_of(address, bytes);
  for (auto i = run.first; i < run.first + run.count; ++i)
    if (coming(granules_[i])) return room_.lacking() ? Arrival::no_room : Arrival::no_time;
  return Arrival::in_time;
}

// A promotion that finds no room, and nothing that makes any, stays in slow memory.
void NumaEngine::await(std::uintptr_t address, std::uint64_t bytes) noexcept {
  Guard guard(lock_);
  const auto run = addresses_.run_of(address, bytes);
  for (auto i = run.first; i < run.first + run.count; ++i) {
    if (!coming(granules_[i])) continue;
    const auto given_up = [&] {
      return granules_[i].place == GranuleState::queued_in && room_.hopeless();
    };
    queues_.stall(guard, [&] { return !coming(granules_[i]) || given_up() || queues_.stopped(); });
  }
}

void NumaEngine::leave(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const Guard guard(lock_);
  const auto run = addresses_.run_of(address, bytes);
  for (auto i = run.first; i < run.first + run.count; ++i) queues_.cancel(granules_[i]);
}

std::uint64_t NumaEngine::fast_bytes(std::uintptr_t address, std::uint64_t bytes) const noexcept {
  const Guard guard(lock_);
  const auto run = addresses_.run_of(address, bytes);
  std::uint64_t fast = 0;
  for (auto i = run.first; i < run.first + run.count; ++i)
    fast +=
        granules_[i].place == GranuleState::fast || granules_[i].place == GranuleState::queued_out;
  return fast == run.count ? bytes : bytes * fast / run.count;
}

// Memory that the former kind of step has left behind.
void NumaEngine::reuse_dead_blocks() noexcept {
  const Guard guard(lock_);
  if (counting_) return;
  const auto dead = [](const Granule& g) {
    return g.live == 0 && g.touched &&
           (g.place == GranuleState::slow || g.place == GranuleState::fast);
  };
  granules_.for_runs({0, granules_.top()}, dead, [this](Run part) {
    for (auto i = part.first; i < part.first + part.count; ++i) {
      room_.release(counted(granules_[i].place));
      granules_[i].place = GranuleState::slow;
    }
    granules_.drop(part);
  });
  room_.changed();
}

// --- counting

int NumaEngine::start_counting() noexcept {
  if (counting_) return -EALREADY;
  if (!switch_.possible()) return -EOPNOTSUPP;
  Guard guard(lock_);
  queues_.freeze(guard);
  const int code = switch_.to_shared();
  if (code == 0) {
    counting_ = true;
    granules_.all_slow();
    queues_.forget_demotions();
    room_.release(room_.held());
  }
  queues_.thaw();
  return code;
}

int NumaEngine::stop_counting() noexcept {
  if (!counting_) return -EALREADY;
  Guard guard(lock_);
  queues_.freeze(guard);
  const int code = switch_.to_private();
  if (code == 0) {
    counting_ = false;
    for (GranuleIndex i = 0; i < granules_.top(); ++i)
      if (granules_[i].wanted != 0) queues_.queue_in(i);
  }
  queues_.thaw();
  return code;
}

void NumaEngine::stop_barring() noexcept {
  switch_.stop_barring();
  counted_in_kernel();  // here too, huge pages were split
}

void NumaEngine::counted_in_kernel() noexcept {
  if (granule_ < kGranule) return;
  const Guard guard(lock_);
  granules_.for_runs(
      {0, granules_.top()}, [](const Granule& g) { return g.touched && g.live != 0; },
      [this](Run run) { addresses_.make_whole(run); });
}

// --- fork

void NumaEngine::before_fork() noexcept {
  lock_.lock();
  Guard guard(lock_, std::adopt_lock);
  queues_.freeze(guard);
  guard.release();
}

void NumaEngine::after_fork_in_parent() noexcept {
  queues_.thaw();
  lock_.unlock();
}

void NumaEngine::after_fork_in_child() noexcept {
  if (auto* const faults = loop()) faults->abandon_in_child();
  lock_.unlock();
}

EngineCounters NumaEngine::counters() const {
  const Guard guard(lock_);
  EngineCounters counters;
  counters.held_bytes = room_.held() * granule_;
  counters.peak_bytes = room_.peak() * granule_;
  counters.stall_us = queues_.stall_us();
  movers_.add_to(counters);
  return counters;
}

}  // namespace sentinel
