// TENSILE's scheduling (its Algorithms 1 to 3) for jobs that run at the same time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sentinel/machine.h"
#include "sentinel/plan.h"
#include "sentinel/policy.h"
#include "sentinel/profile.h"

namespace sentinel::plan::tensile {

// Features that PlanOptions::without may name.
inline constexpr std::string_view kAcrossSteps = "across-steps";  // swaps over the step's end
inline constexpr std::string_view kRecompute = "recompute";
inline constexpr std::string_view kBelowBudget = "below-budget";  // goes on although it fits

struct ScheduledJob {
  const Profile* profile = nullptr;
  std::vector<double> op_us;  // as long as they take among the other jobs
  double start_us = 0;        // places its steps against the other jobs'
  double swap_share = 1;      // PlannedJob::swap_share
};

// One plan a job; together within options.fast_bytes whatever the jobs' steps do at the same time,
// since the peak of all is reckoned as the sum of theirs. Throws Error where even with waiting the
// budget cannot work.
std::vector<Plan> schedule(std::span<const ScheduledJob>, const Machine&, const PlanOptions&);

}  // namespace sentinel::plan::tensile
