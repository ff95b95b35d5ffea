// Why a plan is as it is, in words.
#pragma once

#include <string>
#include <string_view>

#include "sentinel/plan.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

// The whole plan: budget and bounds, pools, the interval curve (Figure 5 of the Sentinel paper),
// what moves most.
std::string explain(const Plan&, const Profile&);

// One tensor by name or number ("17" or "#17"); several where the name is not unique. Throws Error
// with similar names where there is none.
std::string explain_tensor(const Plan&, const Profile&, std::string_view tensor);

}  // namespace sentinel::plan
