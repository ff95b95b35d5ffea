// What the searching policies share: random numbers that depend on nothing but their seed, and
// threads that leave signals alone.
#pragma once

#include <cstdint>
#include <exception>

#include "base/quiet_thread.h"

namespace sentinel::plan {

class Random {  // splitmix64: cheap to begin anew for each task, so that threads do not matter
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  // For task number `task` of the search with this seed.
  Random(std::uint64_t seed, std::uint64_t task)
      : state_(seed ^ ((task + 1) * 0xd1342543de82ef95)) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  double share() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // of [0, 1)

 private:
  std::uint64_t state_;
};

// Calls `body` in a thread with all signals blocked, a mask that threads started there inherit, and
// waits for it. What it throws is thrown here.
template <class Body>
void in_quiet_thread(Body&& body) {
  std::exception_ptr thrown;
  quiet_thread([&] {
    try {
      body();
    } catch (...) {
      thrown = std::current_exception();
    }
  }).join();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace sentinel::plan
