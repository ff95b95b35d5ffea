// How much of its step a training holds, and in which ops more than its base: the peaks for which a
// job of a broker asks for leases. By the profile alone: a plan holds no more than what is alive,
// and no more than its budget.
#pragma once

#include <cstdint>
#include <vector>

#include "sentinel/profile.h"

namespace sentinel::plan {

// Bytes that each op holds where memory is ample: what is alive, a thirty-second of it for the rest
// of granules, and `frames` for transfers.
std::vector<std::uint64_t> held_bytes(const Profile&, std::uint64_t frames_bytes);

// What is held for half of the step's time at least.
std::uint64_t usual_bytes(const Profile&, std::uint64_t frames_bytes);

struct PeakOptions {
  std::uint64_t base = 0, most = 0;  // `most`: for which the plan was made
  std::uint64_t frames_bytes = 0;    // that transfers take
  double ahead_us = 0;               // for so long before it is needed
  double valley_us = 0;              // a fall and rise that are shorter are none
  friend bool operator==(const PeakOptions&, const PeakOptions&) = default;
};

// Per op, bytes beyond the base that should be held from its beginning on; in few sizes. Empty: the
// base is enough.
std::vector<std::uint64_t> peaks(const Profile&, const PeakOptions&);

}  // namespace sentinel::plan
