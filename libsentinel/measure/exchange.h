// What the engine's exchange with its slow tier costs: its speed, and what arithmetic beside it
// loses.
#pragma once

#include <cstdint>

#include "engine/ssd/ssd_engine.h"

namespace sentinel {

// The steady state of a plan that swaps activations: a tensor of one block comes back ahead of its
// use, is waited for, used and dies; another is born elsewhere and leaves. A third of them is
// resident.
class Exchange {
 public:
  // The options' arena has room for twice as many blocks. Throws Error.
  Exchange(const EngineOptions&, std::uint64_t blocks);

  struct Run {
    double seconds;
    std::uint64_t bytes;  // in and out together
  };
  Run run();            // two rounds
  void settle() const;  // until what is on its way out has left

 private:
  // The tensor's place; in the next round another lies at the same distance from it.
  std::uintptr_t at(std::uint64_t n) const {
    return engine_.arena() + n % (2 * blocks_) * kGranule;
  }
  void touch(std::uint64_t n) const;
  std::uint64_t moved() const;

  SsdEngine engine_;
  std::uint64_t blocks_, ahead_;
};

// Seconds by which each GB moved lengthens arithmetic on all processors, whose threads meet at a
// barrier a thousand times a second and more, as those of OpenMP do. Takes some three seconds, and
// the space of so many blocks on the drive, rounded up as its file grows. Throws Error.
double measure_cpu_s_per_gb(const EngineOptions&, std::uint64_t blocks);

}  // namespace sentinel
