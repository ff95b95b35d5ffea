// Executes a plan's moves over two steps as the engine would, with every write taking as long as
// the plan allows, and checks the second. Part of verify().
#pragma once

#include <cstdint>
#include <vector>

#include "plan/check/violations.h"
#include "plan/step/storage.h"
#include "sentinel/machine.h"
#include "sentinel/plan.h"

namespace sentinel::plan {

// The peak of fast memory, bytes in granules. Adds to `bad` each op that holds too much, uses what
// is not there, or is streamed though it would fit; where the machine is given, also each that uses
// in place what lies in a tier that is not byte-addressable.
std::uint64_t check_two_steps(const Plan&, const Profile&, const std::vector<Storage>&,
                              const Machine*, Violations& bad);

}  // namespace sentinel::plan
