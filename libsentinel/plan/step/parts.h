// Tensors cut into parts, so that a plan may hold or move a part of a large one. A profile in parts
// is an ordinary profile: planners, verify() and the simulator know nothing of it. A plan made for
// it says so in Plan::part_bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sentinel/profile.h"

namespace sentinel::plan {

// Every storage of more than `part_bytes` becomes ceil(bytes / part_bytes) tensors of equal size
// (rounded up to 4096 B, the last one smaller), each named in every op that named the whole. Parts
// of one tensor have consecutive ids; the order of tensors is kept. Foreign tensors and, with
// part_bytes 0, all tensors stay whole. Counts are divided in proportion; the step's signature
// stays. Linear in the profile and the number of parts named. Throws Error where parts_refused()
// has a reason.
Profile in_parts(const Profile&, std::uint64_t part_bytes);

// Why a profile is not cut so finely: its parts, or the names that ops would have for them, would
// be far more than the profile itself holds. A plan file may ask for anything.
std::optional<std::string> parts_refused(const Profile&, std::uint64_t part_bytes);

// The first part of each tensor, by its id in parts, and the number of all parts at the end.
std::vector<std::uint32_t> first_parts(const Profile&, std::uint64_t part_bytes);

}  // namespace sentinel::plan
