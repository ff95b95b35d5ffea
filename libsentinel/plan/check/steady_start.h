// Where a plan's steady state begins.
#pragma once

#include <vector>

#include "sentinel/plan.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

// Tensors that the steady state expects outside fast memory when a step begins: persistent ones,
// and those carried over from the step before.
std::vector<TensorId> absent_at_start(const Plan&, const Profile&);

}  // namespace sentinel::plan
