// The host's pinned memory, in granules: those that are free, and how many there may be. It is
// pinned in slabs, and unpinned all at once. It knows no place.
//
// The engine's lock guards it. grow() lets that go while it pins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/gpu/device/driver.h"

namespace sentinel::gpu {

class PinnedMemory {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // At most so many granules; ~0: no limit.
  PinnedMemory(Driver& driver, std::uint64_t granule, std::uint64_t most)
      : driver_(driver), granule_(granule), most_(most) {}
  void unpin() noexcept;  // all of it: nothing uses it any more

  void* take();  // null while none is free
  void give(void* memory) { free_.push_back(memory); }

  bool may_grow() const { return pinned_ < most_; }
  bool lacks(std::uint64_t granules) const { return free_.size() < granules && may_grow(); }
  // False: there is all that there may be. Throws Error where the host has none.
  bool grow(std::uint64_t granules, Lock&);
  bool growing() const { return growing_ > 0; }

  std::uint64_t to_be_had() const { return free_.size() + (most_ - pinned_); }
  std::uint64_t most() const { return most_; }

 private:
  void* pin(std::uint64_t granules);

  Driver& driver_;
  const std::uint64_t granule_, most_;  // granules of memory
  std::vector<void*> free_, slabs_;
  std::uint64_t pinned_ = 0;  // granules
  int growing_ = 0;           // threads that pin some
};

}  // namespace sentinel::gpu
