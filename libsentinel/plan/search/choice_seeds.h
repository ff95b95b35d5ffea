// Vectors of choices for a search to begin with: for a range of prices of link time, swap or
// recompute whichever is cheaper, everything or only what the limit asks for.
#pragma once

#include <chrono>
#include <vector>

#include "plan/search/cost_model.h"

namespace sentinel::plan {

// Each in near-linear time; past the deadline no more of them than the first three. The first one
// keeps nothing and only swaps.
std::vector<std::vector<Remedy>> choice_seeds(
    const CostModel&,
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max());

}  // namespace sentinel::plan
