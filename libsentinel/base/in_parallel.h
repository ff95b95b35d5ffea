// Work for all processors at once: oneTBB's loop.
//
// Its library is not built with a thread sanitizer, which therefore does not see that the caller
// waits for the threads. The counter tells it.
#pragma once

#include <tbb/parallel_for.h>

#include <atomic>
#include <cstddef>

namespace sentinel {

// Calls `body(i)` for each i below `n`, in any order and in several threads, and waits for all.
// What a body throws is thrown here; others may be left out then.
template <class Body>
void in_parallel(std::size_t n, const Body& body) {
  std::atomic<std::size_t> left{0};
  left.store(n, std::memory_order_release);
  tbb::parallel_for(
      std::size_t{0}, n,
      [&](std::size_t i) {
        static_cast<void>(left.load(std::memory_order_acquire));
        body(i);
        left.fetch_sub(1, std::memory_order_acq_rel);
      },
      tbb::simple_partitioner());
  static_cast<void>(left.load(std::memory_order_acquire));
}

}  // namespace sentinel
