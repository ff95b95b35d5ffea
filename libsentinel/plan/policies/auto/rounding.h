// The solution of the bound's linear program as decisions about whole parts.
#pragma once

#include <vector>

#include "plan/bound/bound.h"
#include "plan/policies/auto/facts.h"

namespace sentinel::plan {

// Moves only. What rounding loses in one gap goes to the next; what is too much for the budget less
// `slack` after that leaves by Belady's rule.
std::vector<Decision> rounded(const Facts&, const Bound&, double slack);

}  // namespace sentinel::plan
