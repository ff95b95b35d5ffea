// What limits the traffic between fast memory and the slower tiers, all transfers together.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sentinel/machine.h"

namespace sentinel::plan {

// A tier's port or a link, one way (a half-duplex link: both), in the bound's units.
struct Passage {
  double mib_per_ms;
  // Slower tiers whose traffic crosses it, and how much of it a byte of that takes (rates.h).
  std::map<std::uint32_t, double> out, in;
};

// Those that could ever hold traffic up: not what another passage of no more bandwidth, crossed by
// the same traffic and more, always would before. As in sim/fluid/fabric.h.
std::vector<Passage> passages(const Machine&);

// All traffic together; infinite where some of it crosses nothing that has a limit.
double most_mib_per_ms(const Machine&);

// Milliseconds at least by which a MiB that flows makes a step longer, for the processors' sake: it
// makes ops compute longer, or flows while none does, and no more does then than the links carry.
double flowing_ms_per_mib(const Machine&);

// Milliseconds at least for a MiB that an op lets pass: each way alone, its part where a link
// carries both ways in turn, and of the processors.
struct PassingCost {
  double in = 0, out = 0, turn_in = 0, turn_out = 0, processors = 0;
};
PassingCost passing_cost(const Machine&);

}  // namespace sentinel::plan
