// Whether the live engine can do what it is asked, before anything is trained. Each throws Error
// and says what would work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "options/options.h"
#include "sentinel/machine.h"
#include "sentinel/plan.h"
#include "sentinel/policy.h"
#include "sentinel/profile.h"

namespace sentinel {

std::uint64_t smallest_budget(const SessionOptions&);
// A budget of fast memory. Names the smallest that works.
void require_workable(std::uint64_t fast_bytes, const SessionOptions&);
// The same where the model is known: names the smallest without streaming and the Sentinel paper's
// bound (section IV-E) as well.
void require_workable(std::uint64_t fast_bytes, const SessionOptions&, const Profile&,
                      const Machine&, PlannedPolicy&);

// Who counts, and what is watched: what is asked for by name and cannot be had is an error.
// `driver`: of a GPU, if it is open already.
void require_counting(const SessionOptions&, gpu::Driver* driver = nullptr);

// A policy that makes plans; or on a GPU one whose pager decides by faults.
void require_policy(const SessionOptions&);

// A plan for this engine's granule. `replays`: the runtime makes tensors again as plans say.
void require_live(const Plan&, const SessionOptions&, bool replays = false);

}  // namespace sentinel
