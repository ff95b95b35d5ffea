// What a move costs on a machine: the bandwidth between two tiers is that of the slowest part on
// the way.
#pragma once

#include <cstdint>
#include <vector>

#include "sentinel/machine.h"

namespace sentinel::plan {

// Indices into Machine::links of the links that a transfer between the two tiers crosses.
std::vector<std::size_t> links_between(const Machine&, std::uint32_t from, std::uint32_t to);

// Bytes per microsecond of one transfer alone; infinite where the machine states no limit.
double rate(const Machine&, std::uint32_t from, std::uint32_t to);

}  // namespace sentinel::plan
