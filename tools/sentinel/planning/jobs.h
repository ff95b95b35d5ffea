// Several trainings on one machine: what `simulate --jobs` shows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sentinel/machine.h"
#include "sentinel/policy.h"
#include "sentinel/profile.h"
#include "sim/simulator.h"

namespace sentinel::cli {

struct JobSpec {
  std::string file;
  double start_us = 0;
  double swap_share = 1;  // PlannedJob::swap_share
};

// "A@0,B@5s,C@200ms@30%": a file, when it begins (seconds where no unit is given) and, if it is
// wanted, the largest share of the swaps it may have. "@5s" without a file is `file`. Throws
// UsageError.
std::vector<JobSpec> parse_jobs(const std::string& text, const std::string& file);

struct JobsScenario {
  std::vector<JobSpec> jobs;
  std::vector<Profile> profiles;  // one a job, filled by load()
  Machine machine;
  PlanOptions plan;
  std::uint32_t steps = 3;
  double noise = 0;
};

struct JobsTrial {
  std::string policy;
  std::optional<sim::JobsResult> result;  // absent: not feasible
  std::string reason;                     // then
  sim::JobsResult plain;                  // the same jobs where nothing is scarce or moves
  double plan_ms = 0;
};

// TENSILE's measures (its section 5.1), of all jobs together.
struct JobsMeasures {
  double msr = 0;  // memory saved: 1 - peak / plain peak
  // Extra time: all steps of all jobs / those of the plain jobs - 1. All steps: with noise or jobs
  // of different lengths the last one alone has other company than its plain counterpart.
  double eor = 0;
  std::optional<double> cbr;  // msr / eor; absent where there is no extra time
};
JobsMeasures measures(const JobsTrial&);

void load(JobsScenario&);  // throws Error
std::uint64_t jobs_budget_bytes(const std::string& fast, const JobsScenario&);

// Never throws for what a policy cannot do: that is a result.
JobsTrial try_jobs(const JobsScenario&, const std::string& policy);

std::string jobs_text(const JobsScenario&, const std::vector<JobsTrial>&);
std::string jobs_json(const JobsScenario&, const std::string& file, const std::vector<JobsTrial>&);

}  // namespace sentinel::cli
