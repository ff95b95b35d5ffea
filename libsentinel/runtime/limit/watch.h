// Where the accesses of a step went, by NUMA node: counted by the kernel's source over all of the
// arena, by the node in which a page lay when it was opened. What a plan has achieved is measured
// so, and so is what the kernel's own tiering achieves on the same training.
//
// The session's lock guards it. Costs what counting costs: for measurements, not for production.
#pragma once

#include <array>
#include <cstdint>

#include "capture/kernel_source.h"

namespace sentinel {

class Watch {
 public:
  struct NodeCounts {
    std::array<std::uint64_t, SENTINEL_NODES> node{};
    std::uint64_t unplaced = 0;  // the page had no memory before
  };

  explicit Watch(std::uintptr_t arena);  // throws Error

  // A tensor ends here: what lies below is watched.
  void cover(std::uintptr_t end) noexcept;
  // Openings since the last call.
  NodeCounts take() noexcept;

 private:
  KernelSource source_;
  std::uintptr_t covered_;
  NodeCounts before_;
};

}  // namespace sentinel
