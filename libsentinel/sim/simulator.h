// Replays a profile under a controller on a machine: compute and transfers as fluid, tensors whole,
// space by granules.
//
// What an op costs: it starts when everything it reads is in fast memory and everything it makes
// has room; it then computes for its own time. A tensor that only gets written needs room and no
// transfer. What is missing and not on its way is fetched at once, at the machine's fault cost per
// batch, and counted; on a byte-addressable slow tier it is used there at that tier's bandwidth
// instead. Where nothing else makes room, the longest unused tensor is put out. An op whose own
// working set does not fit is streamed: it starts at once. What finds room comes while it computes;
// what finds none passes through, in and out. The op ends when both are done.
//
// Moves of one kind go in order, one at a time for each slower tier; a migration holds space at
// both ends until it is done. A tensor not written since it was brought in leaves without transfer.
//
// Steps repeat until the last one asked for, which is the one reported. Deterministic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sentinel/machine.h"
#include "sentinel/plan.h"
#include "sentinel/policy.h"
#include "sentinel/profile.h"
#include "sim/fluid/simulation.h"

namespace sentinel::sim {

// Throws Error where even the smallest tensor could never fit.
SimResult simulate(const Profile&, const Machine&, Controller&, const SimOptions&);

// A plan under its own budget, from its steady state: the profile is cut into Plan::part_bytes
// first. Of the options, fast_bytes, placements and absent are the plan's.
SimResult simulate(const Profile&, const Machine&, const Plan&, SimOptions = {});

// For planners that try their plans: the second step of a simulation, steady for nearly all.
Judge judge();

// Jobs that share the machine: its compute in equal parts among those that compute, its links, and
// one fast memory of options.fast_bytes. A job that lacks room puts out what it has not used the
// longest; where it has nothing, another job's.
struct JobsResult {
  std::vector<SimResult> jobs;  // each as of its last step; traffic, peak and timeline its own
  std::vector<double> end_us;
  std::uint64_t peak_fast_bytes = 0;  // of all together
};
JobsResult simulate_jobs(std::span<const Job>, const Machine&, const SimOptions&);

}  // namespace sentinel::sim
