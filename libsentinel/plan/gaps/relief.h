// The last resort of a planner that weighs gains: what is still too much at an op leaves, whatever
// it costs, so that the plan is complete.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "plan/gaps/pressure.h"

namespace sentinel::plan {

// The idle time of a storage between two uses. While `evicted` it holds nothing during [out, in),
// use < out <= in <= next.
struct Period {
  std::uint32_t storage = 0;
  std::uint32_t use = 0, next = 0;
  std::uint64_t bytes = 0;
  std::uint32_t out = 0, in = 0;
  std::uint32_t tier = 0;
  bool evicted = false;
  bool forced = false;  // by relieve()
};

// Until each op fits, or nothing is left that could leave: evicted periods that hold space while
// they are written or come back early let go of it; then the period that ends last is evicted for
// all of its time, `evict` being told (it chooses the tier). O(n log n).
void relieve(Pressure&, std::vector<Period>&, std::uint32_t ops,
             const std::function<void(Period&)>& evict);

}  // namespace sentinel::plan
