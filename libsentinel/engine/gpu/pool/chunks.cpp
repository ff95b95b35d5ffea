// Makes chunks within the budget, and gives surplus ones back to the driver.
#include "engine/gpu/pool/chunks.h"

#include <algorithm>
#include <utility>

#include "base/units.h"

namespace sentinel::gpu {

std::uint64_t spare_of(std::uint64_t free_bytes) {
  return std::min(std::max(512_MiB, free_bytes / 50), free_bytes / 8);
}

namespace pool {

Chunks::Chunks(Driver& driver, Monitor& monitor, std::uint64_t granule, std::uint64_t spare,
               const std::atomic<std::uint64_t>& clock)
    : driver_(driver), monitor_(monitor), granule_(granule), spare_bytes_(spare), clock_(clock) {}

void Chunks::destroy_free() {
  for (Chunk chunk : free_) driver_.destroy(chunk);
}

std::uint64_t Chunks::limit(std::uint64_t budget) {
  device_ = ~0ull;  // others may have left it
  unasked_ = 0;
  return std::exchange(budget_, budget);
}

void Chunks::drop_surplus(Guard& guard) {
  List surplus;
  for (; chunks_ > budget_ && !free_.empty(); --chunks_) {
    surplus.push_back(free_.back());
    free_.pop_back();
  }
  if (surplus.empty()) return;
  monitor_.outside(guard, [&] {
    for (const Chunk chunk : surplus) driver_.destroy(chunk);
  });
}

std::uint64_t Chunks::most_now() {
  const auto free = driver_.free_bytes();
  return std::min({budget_, device_, chunks_ + (free - std::min(free, spare_bytes_)) / granule_});
}

// Whether the device has room for one more than it is going to be asked for. It is asked now and
// then, for others use it, too, and once an op where it has none.
bool Chunks::leaves_spare(std::uint64_t promised) {
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

void Chunks::take_free(List& chunks, std::uint64_t most) {
  for (; chunks.size() < most && !free_.empty(); free_.pop_back()) chunks.push_back(free_.back());
}

void Chunks::give_back(List& chunks, std::size_t keep) {
  if (keep == chunks.size()) return;
  free_.insert(free_.end(), chunks.begin() + static_cast<std::ptrdiff_t>(keep), chunks.end());
  chunks.resize(keep);
  monitor_.wake_waiting();
}

bool Chunks::make(List& chunks, std::uint64_t most, Guard& guard) {
  std::uint64_t count = 0;
  while (count < most && chunks_ + count < std::min(budget_, device_) && leaves_spare(count))
    ++count;
  return count > 0 && create(chunks, count, guard);
}

// They count as soon as they are asked for.
bool Chunks::create(List& chunks, std::uint64_t count, Guard& guard) {
  const auto before = chunks.size();
  chunks_ += count;
  monitor_.outside(guard, [&] {
    for (std::uint64_t n = 0; n < count; ++n) {
      const auto made = driver_.create(granule_);
      if (!made) return;
      chunks.push_back(*made);
    }
  });
  const auto made = chunks.size() - before;
  chunks_ -= count - made;
  if (made < count) device_ = chunks_;
  peak_ = std::max(peak_, chunks_);
  return made > 0;
}

}  // namespace pool
}  // namespace sentinel::gpu
