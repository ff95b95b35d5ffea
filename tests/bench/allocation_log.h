// One training step's allocations, in their order, read from a tensor trace: what the benchmarks
// replay. An op's allocations come before its frees, as the trace knows no order within an op.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sentinel/profile.h"

namespace sentinel::bench {

struct AllocationLog {
  struct Event {
    std::uint32_t tensor;
    bool allocates;
  };

  Profile profile;
  std::vector<std::uint32_t> persistent;  // allocated before the first step
  std::vector<Event> step;
  std::vector<std::uint32_t> op_begin;  // per op, and one past the end: its first event in `step`
  std::uint64_t peak_bytes = 0;         // live at once, persistent ones included

  std::size_t tensors() const { return profile.tensors.size(); }
  std::uint64_t bytes(std::uint32_t tensor) const { return profile.tensors[tensor].bytes; }
  std::size_t pairs() const { return step.size() / 2; }
};

// Tensors that live within the step are made `factor` times larger, as a larger batch would.
AllocationLog read_log(const std::string& path, std::uint64_t factor = 1);

}  // namespace sentinel::bench
