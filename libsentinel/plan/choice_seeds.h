// Vectors of choices for a search to begin with: for a range of prices of link time, swap or
// recompute whichever is cheaper, everything or only what the limit asks for.
#pragma once

#include <vector>

#include "plan/cost_model.h"

namespace sentinel::plan {

// In near-linear time. The first one keeps nothing and only swaps.
std::vector<std::vector<Remedy>> choice_seeds(const CostModel&);

}  // namespace sentinel::plan
