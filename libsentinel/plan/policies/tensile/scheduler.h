// TENSILE's scheduling (its Algorithms 1 to 3) for jobs that run at the same time.
#pragma once

#include <span>
#include <vector>

#include "plan/policies/tensile/scheduled_job.h"
#include "sentinel/machine.h"
#include "sentinel/plan.h"
#include "sentinel/policy.h"

namespace sentinel::plan::tensile {

// One plan a job; together within options.fast_bytes whatever the jobs' steps do at the same time,
// since the peak of all is reckoned as the sum of theirs. Throws Error where even with waiting the
// budget cannot work.
std::vector<Plan> schedule(std::span<const ScheduledJob>, const Machine&, const PlanOptions&);

}  // namespace sentinel::plan::tensile
