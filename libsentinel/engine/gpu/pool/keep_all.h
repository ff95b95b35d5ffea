// Whether all that lives stays, so that ops need not tell what they use, and whether that has
// become short of memory. It counts, and knows no block.
//
// The engine's lock guards the counts; both flags are read without.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace sentinel::gpu::pool {

class KeepAll {
 public:
  void stop() { keeps_ = short_ = false; }
  // Of so many chunks at most: a sixteenth has to have been free all along.
  void start(std::uint64_t most) {
    const auto used = std::exchange(most_used_, 0);
    if (used + most / 16 > most) return;
    most_kept_ = most - most / 32;
    keeps_ = true;
  }
  bool keeps() const noexcept { return keeps_; }
  bool keeps_here() const noexcept { return keeps_.load(std::memory_order_relaxed); }  // no lock
  bool is_short() const noexcept { return short_.load(std::memory_order_relaxed); }

  void note(std::uint64_t used) {  // chunks of what lives
    most_used_ = std::max(most_used_, used);
    if (keeps_ && used > most_kept_) short_ = true;
  }
  // Something lacks memory that another would have to leave: whether it has to do without.
  bool refuses() {
    if (keeps_) short_ = true;
    return keeps_;
  }

 private:
  // Chunks: of what lives, the most since it was last asked whether all can be kept; with more than
  // so many it is short then.
  std::uint64_t most_used_ = 0, most_kept_ = ~0ull;
  std::atomic<bool> keeps_ = false, short_ = false;
};

}  // namespace sentinel::gpu::pool
