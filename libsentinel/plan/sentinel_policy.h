// The Sentinel paper's policy (sections IV-B to IV-E) as a planned policy. Where it departs from
// the paper, and why, is written where it happens: layout.h (which long-lived tensors move at all),
// interval.h (bytes in Equation 2), schedule.h (only what has to leave leaves), issue.h (order).
#pragma once

#include <memory>

#include "sentinel/policy.h"

namespace sentinel::plan {

std::unique_ptr<Policy> make_sentinel();

}  // namespace sentinel::plan
