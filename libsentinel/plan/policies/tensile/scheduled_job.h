// A job as TENSILE schedules it, and what may be left out of its algorithms.
#pragma once

#include <string_view>
#include <vector>

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

}  // namespace sentinel::plan::tensile
