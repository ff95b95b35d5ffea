// What one executor has in flight, and for how long it had anything: bandwidth while moving.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace sentinel {

struct Flow {
  std::uint64_t bytes = 0;
  double busy_us = 0;  // in which at least one transfer was in flight

  Flow operator-(const Flow& earlier) const noexcept {
    return {bytes - earlier.bytes, busy_us - earlier.busy_us};
  }
};

// Not thread-safe.
class FlowMeter {
 public:
  void started() noexcept {
    if (in_flight_++ == 0) since_ = Clock::now();
  }
  void finished(std::size_t count, std::uint64_t bytes) noexcept {
    if (count == 0) return;
    const auto now = Clock::now();
    flow_.busy_us += std::chrono::duration<double, std::micro>(now - since_).count();
    since_ = now;
    in_flight_ -= count;
    flow_.bytes += bytes;
  }
  const Flow& flow() const noexcept { return flow_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::size_t in_flight_ = 0;
  Clock::time_point since_;
  Flow flow_;
};

}  // namespace sentinel
