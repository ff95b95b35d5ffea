// Hands out ordinary memory, and counts what is held; nothing moves.
#include "engine/gpu/pageable_engine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "alloc/ranges.h"
#include "base/units.h"
#include "engine/gpu/checked.h"
#include "engine/granule.h"
#include "sentinel/error.h"

namespace sentinel::gpu {

// The first advice is given here, so that a driver that refuses it does before anything is trained.
PageableEngine::PageableEngine(Driver& driver, std::uint64_t arena_bytes)
    : driver_(driver),
      mirrored_(driver.pageable() == Pageable::mirrored),
      on_host_(arena_bytes / kGranule) {
  alignment_ = kAlignment;  // a recording serves a run in pools
  guarded_ = false;
  granule_ = kGranule;
  arena_bytes_ = arena_bytes;
  arena_ = reserve_anonymous(arena_bytes_, kGranule);
  madvise(reinterpret_cast<void*>(arena_), arena_bytes_, MADV_DONTFORK);
  try {
    keep_on_host(arena_, 1);
  } catch (...) {
    munmap(reinterpret_cast<void*>(arena_), arena_bytes_);
    throw;
  }
}

PageableEngine::~PageableEngine() {
  checked([this] {
    for (Event event : events_) driver_.destroy_event(event);
  });
  munmap(reinterpret_cast<void*>(arena_), arena_bytes_);
}

void PageableEngine::finish() noexcept {
  checked([this] {
    std::unique_lock guard(lock_);
    if (in_child_) return;
    if (events_.empty()) events_.push_back(driver_.make_event());
    Event event = events_.back();
    events_.pop_back();
    guard.unlock();
    driver_.record(event, streams_.here());
    driver_.synchronize(event);
    guard.lock();
    events_.push_back(event);
  });
}

void PageableEngine::set_budget(std::uint64_t bytes) {
  if (bytes != 0) throw Error("memory that is recorded where it lies has no budget");
}

// Each granule once: the advice outlives the tensor.
void PageableEngine::keep_on_host(std::uintptr_t address, std::uint64_t bytes) {
  if (!mirrored_) return;
  const auto end = (address - arena_ + bytes - 1) / granule_ + 1;
  for (auto index = (address - arena_) / granule_; index < end; ++index) {
    const auto first = index;
    while (index < end && !on_host_[index]) on_host_[index++] = true;
    if (index > first) driver_.prefer_host(arena_ + first * granule_, (index - first) * granule_);
  }
}

bool PageableEngine::on_allocate(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const std::lock_guard guard(lock_);
  if (bytes != 0) checked([&] { keep_on_host(address, bytes); });
  counters_.held_bytes += bytes;
  counters_.peak_bytes = std::max(counters_.peak_bytes, counters_.held_bytes);
  return true;
}

bool PageableEngine::on_free(std::uintptr_t, std::uint64_t bytes, bool) noexcept {
  const std::lock_guard guard(lock_);
  counters_.held_bytes -= bytes;
  return true;
}

void PageableEngine::after_fork_in_child() noexcept {
  in_child_ = true;
  lock_.unlock();
}

EngineCounters PageableEngine::counters() const {
  const std::lock_guard guard(lock_);
  return counters_;
}

}  // namespace sentinel::gpu
