// The time in which training threads wait for memory, and how often they wait for bytes. It wakes
// nobody. The engine's lock guards it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace sentinel {

class FrameStalls {
 public:
  // Waits that overlap count once.
  void begin() noexcept {
    if (waiters_++ == 0) began_ = Clock::now();
  }
  void end() noexcept {
    if (--waiters_ == 0)
      us_ += std::chrono::duration<double, std::micro>(Clock::now() - began_).count();
  }
  void begin_for_bytes() noexcept {
    begin();
    ++demand_faults_;
  }

  double us() const noexcept { return us_; }
  std::uint64_t demand_faults() const noexcept { return demand_faults_; }

 private:
  using Clock = std::chrono::steady_clock;

  std::size_t waiters_ = 0;  // threads waiting for a block now
  Clock::time_point began_;
  double us_ = 0;
  std::uint64_t demand_faults_ = 0;  // touches that had to wait for bytes from the slow tier
};

}  // namespace sentinel
