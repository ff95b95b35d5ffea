// What a move costs on a machine: the bandwidth between two tiers is that of the slowest part on
// the way.
#pragma once

#include <cstdint>
#include <vector>

#include "sentinel/machine.h"

namespace sentinel::plan {

// Indices into Machine::links of the links that a transfer between the two tiers crosses.
std::vector<std::size_t> links_between(const Machine&, std::uint32_t from, std::uint32_t to);

// How much of a link's bandwidth a byte takes: one, or more where a half-duplex port's tier is
// slower that way than the other.
double weight(const Machine&, const LinkSpec&, std::uint32_t from, std::uint32_t to);

// Bytes per second that one way of the link has while as much moves the other way.
double each_way(const Machine&, const LinkSpec&, std::uint32_t from, std::uint32_t to);

// Bytes per microsecond that a plan may count on for one transfer while as much moves the other
// way; infinite where the machine states no limit.
double rate(const Machine&, std::uint32_t from, std::uint32_t to);
// What it has while nothing else moves.
double lone_rate(const Machine&, std::uint32_t from, std::uint32_t to);
// Microseconds that half-duplex links need, alone, for so much from the tier and so much to it.
double turns_us(const Machine&, std::uint32_t tier, double in, double out);
// Microseconds that a training run needs, beside the replays, to make so many bytes again where
// granules are frames: a hash when they are discarded, and a hash and a copy when they are there
// again.
double remaking_us(const Machine&, double bytes);
// Microseconds of computation that moving so many bytes costs, and the part of its speed that
// computing keeps whatever moves.
double moving_us(const Machine&, double bytes);
constexpr double kLeastSpeed = 0.05;

// Whether ops may use a slower tier where it lies.
bool has_in_place(const Machine&);

}  // namespace sentinel::plan
