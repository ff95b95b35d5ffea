// What a move costs on a machine: the bandwidth between two tiers is that of the slowest part on
// the way.
#pragma once

#include <cstdint>
#include <vector>

#include "sentinel/machine.h"

namespace sentinel::plan {

// Indices into Machine::links of the links that a transfer between the two tiers crosses.
std::vector<std::size_t> links_between(const Machine&, std::uint32_t from, std::uint32_t to);

// Bytes per second of a link while both ways are in use.
double each_way(const LinkSpec&);

// Bytes per microsecond that a plan may count on for one transfer, of a half-duplex link half, as
// the other way may be in use; infinite where the machine states no limit.
double rate(const Machine&, std::uint32_t from, std::uint32_t to);
// What it has while nothing else moves.
double lone_rate(const Machine&, std::uint32_t from, std::uint32_t to);
// Both ways together, between a slower tier and the fastest; infinite without a half-duplex link.
double shared_rate(const Machine&, std::uint32_t tier);

}  // namespace sentinel::plan
