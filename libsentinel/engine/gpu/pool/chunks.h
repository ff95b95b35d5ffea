// The device's memory in chunks of a granule: those that exist, those of them that are free, and
// how many there may be. The budget, what the device has, and what is left to others bound that.
// It knows no block, and makes nobody give a chunk up (room.h).
//
// The engine's lock guards it. Calls that make or destroy memory let that go.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/gpu/pool/monitor.h"

namespace sentinel::gpu {

// Granules that are mapped together at most: few enough that the first copy begins soon. So many
// are unmapped together, too.
constexpr std::size_t neighbours(std::uint64_t granule) {
  constexpr std::uint64_t kMost = 16, kBytes = 32u << 20;
  return std::clamp<std::uint64_t>(kBytes / granule, 1, kMost);
}

// What to leave, of so much that is free: 2 %, 512 MiB at least, but never more than an eighth.
std::uint64_t spare_of(std::uint64_t free_bytes);

namespace pool {

class Chunks {
 public:
  using List = std::vector<Chunk>;

  // `spare`: bytes to leave free on the device.
  Chunks(Driver&, Monitor&, std::uint64_t granule, std::uint64_t spare,
         const std::atomic<std::uint64_t>& clock);
  void destroy_free();

  std::uint64_t limit(std::uint64_t budget);  // in chunks; answers the former budget
  void restore(std::uint64_t budget) { budget_ = budget; }
  bool over_budget() const { return chunks_ > budget_; }
  bool under_budget() const { return chunks_ < budget_; }
  void drop_surplus(Guard&);
  std::uint64_t most_now();  // that there may be, as far as the device has room for more now
  std::uint64_t most() const { return std::min(budget_, device_); }

  bool any_free() const { return !free_.empty(); }
  std::uint64_t free() const { return free_.size(); }
  void take_free(List&, std::uint64_t most);
  void put_free(Chunk chunk) { free_.push_back(chunk); }
  void give_back(List&, std::size_t keep);  // all but the first so many are of no use after all
  // Some, within the budget and what the device has. False: none was made.
  bool make(List&, std::uint64_t most, Guard&);
  bool create(List&, std::uint64_t count, Guard&);  // of what is spare, too

  std::uint64_t count() const { return chunks_; }
  std::uint64_t held_bytes() const { return chunks_ * granule_; }
  std::uint64_t peak_bytes() const { return peak_ * granule_; }
  void begin_peak() { peak_ = chunks_; }

 private:
  bool leaves_spare(std::uint64_t promised);

  Driver& driver_;
  Monitor& monitor_;
  const std::uint64_t granule_, spare_bytes_;
  const std::atomic<std::uint64_t>& clock_;
  std::vector<Chunk> free_;
  // Chunks: that exist; that may; that the device had room for; that may be made before it is asked
  // again.
  std::uint64_t chunks_ = 0, budget_ = ~0ull, device_ = ~0ull, unasked_ = 0;
  std::uint64_t peak_ = 0;           // the most since the budget was set
  std::uint64_t nothing_spare_ = 0;  // the op in which the device had no room for one more
};

}  // namespace pool
}  // namespace sentinel::gpu
