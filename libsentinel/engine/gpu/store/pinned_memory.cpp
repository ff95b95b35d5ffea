// Pins slabs of host memory, and cuts them into granules.
#include "engine/gpu/store/pinned_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace sentinel::gpu {
namespace {

constexpr std::uint64_t kSlab = 16;  // granules that are pinned together
constexpr int kOutOfMemory = 2;      // CUDA_ERROR_OUT_OF_MEMORY

}  // namespace

void PinnedMemory::unpin() noexcept {
  try {
    for (void* slab : slabs_) driver_.unpin(slab);
  } catch (const Error&) {  // the driver went first
  }
}

void* PinnedMemory::take() {
  if (free_.empty()) return nullptr;
  void* memory = free_.back();
  free_.pop_back();
  return memory;
}

// What is pinned counts at once, so that nobody else pins it.
bool PinnedMemory::grow(std::uint64_t granules, Lock& lock) {
  const auto lacking = granules - std::min<std::uint64_t>(granules, free_.size());
  const auto count =
      std::min(std::clamp(round_up(lacking, kSlab), kSlab, 8 * kSlab), most_ - pinned_);
  if (count == 0) return false;
  pinned_ += count;
  ++growing_;
  lock.unlock();
  auto* slab = static_cast<char*>(pin(count));
  lock.lock();
  --growing_;
  slabs_.push_back(slab);
  for (std::uint64_t i = count; i-- > 0;) free_.push_back(slab + i * granule_);
  return true;
}

void* PinnedMemory::pin(std::uint64_t granules) try {
  return driver_.pin(granules * granule_);
} catch (const DriverError& error) {
  if (error.status != kOutOfMemory) throw;
  throw Error(fmt::format(
      "the host has no memory for {} more of what leaves the GPU ({}); {} --host-memory, and a "
      "file in --slow holds the rest",
      print_bytes(granules * granule_), error.what(),
      most_ != ~0ull ? "give less as" : "limit it with"));
}

}  // namespace sentinel::gpu
