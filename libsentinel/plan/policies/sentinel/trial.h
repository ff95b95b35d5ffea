// Case 3 of the Sentinel paper (section IV-D) before the first step: where a promotion is late on a
// byte-addressable slower tier, is it waited for, or does the tensor stay there? The paper runs a
// step each way; a planner that has a judge simulates them.
#pragma once

#include <functional>
#include <vector>

#include "plan/schedule/fates.h"
#include "plan/schedule/schedule.h"
#include "plan/step/interval.h"
#include "sentinel/policy.h"

namespace sentinel::plan {

struct TrialInput {
  const Schedule& schedule;
  const Intervals& intervals;
  std::uint32_t ops = 0;
  std::vector<bool> in_place;                  // per storage: ops can use it where it leaves to
  std::function<Verdict(const Fates&)> judge;  // of the plan with these (plan/schedule/emit.h)
  std::function<bool()> out_of_time;
};

struct Settled {
  Fates fates;
  double step_us = 0;
  std::uint32_t trials = 0;
};

// What is left if every late promotion is, or nothing, whichever is better: two simulations.
Settled settle_at_once(const TrialInput&);

// Goes on from there: the interval that waits longest is tried the other way, then the next one,
// until nothing gets better or `trials` steps have been simulated.
Settled settle_each(const TrialInput&, Settled, std::uint32_t trials);

}  // namespace sentinel::plan
