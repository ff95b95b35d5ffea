// To which slower tier each swapped gap goes, so that the faster of them suffices where it can and
// every link stays busy where it cannot.
#pragma once

#include <span>
#include <vector>

#include "plan/gaps/decisions.h"

namespace sentinel::plan {

// Sets Decision::tier of every swap. Tier 1 as far as its capacity reaches; what exceeds it goes to
// tier 2 in the order in which it leaves, whenever that tier's link would be idle, and at the last
// where tier 1 is full. `op_stall_us` (per op, or empty) stretches the ops' times.
void assign_tiers(const Profile&, const std::vector<Storage>&, const Machine&,
                  std::span<const double> op_stall_us, std::vector<Decision>&);

}  // namespace sentinel::plan
