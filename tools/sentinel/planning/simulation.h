// Trying policies on a machine: what `simulate` and `compare` show.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/view/comparison.h"
#include "sentinel/machine.h"
#include "sentinel/policy.h"
#include "sentinel/profile.h"
#include "sim/simulator.h"

namespace sentinel::cli {

struct PolicyTrial {
  std::string policy;
  std::string variant;  // of a sweep: "fast=20%"; empty otherwise
  double at = 0;        // of a sweep: that value, in bytes, bytes per second or layers
  std::string without;  // the feature that `compare --features` has left out
  std::uint64_t fast_bytes = 0;
  std::optional<sim::SimResult> result;  // absent: not feasible
  std::string reason;                    // then
  double plan_ms = 0;
  double lower_bound_us = 0, swap_lower_bound_us = 0;  // set by Bounds
  std::optional<Strip> strip;                          // of Scenario::strip_parts
};

struct Scenario {
  const Profile& profile;
  Machine machine;
  PlanOptions plan;
  std::uint32_t steps = 3;
  double noise = 0;             // SimOptions::noise; its seed is the plan's
  std::size_t strip_parts = 0;  // not 0: keep the timeline of each trial, in so many parts
};

// Never throws for what a policy cannot do: that is a result.
PolicyTrial try_policy(const Scenario&, const std::string& policy);

// The smallest budget, to the machine's granule, at which the policy reaches the share `target` of
// the throughput that unlimited memory has; nothing where none does.
std::optional<PolicyTrial> smallest_budget(const Scenario&, const std::string& policy,
                                           double target);

// The op with the largest working set. Not fitting, it is streamed where a policy goes on at all;
// a slower tier that ops use in place holds what fast memory does not.
struct LargestOp {
  OpId op;
  std::uint64_t bytes = 0;
  bool fits = true;
};
LargestOp largest_op(const Scenario&);
std::string too_large(const Scenario&, const LargestOp&);  // in words, for one that does not fit

std::string trials_text(const Scenario&, const std::vector<PolicyTrial>&);
std::string trials_json(const Scenario&, const std::string& file, const std::vector<PolicyTrial>&);
std::string trials_csv(const std::vector<PolicyTrial>&);
std::string trials_html(const Scenario&, const std::string& swept, const std::vector<PolicyTrial>&);

}  // namespace sentinel::cli
