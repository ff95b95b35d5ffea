// A profiled step as it would be with tensors of other sizes: same ops, same lifetimes. Page counts
// grow with their tensor, an op's time with the bytes that it names.
#pragma once

#include <cstdint>
#include <vector>

#include "sentinel/profile.h"

namespace sentinel::plan {

// `bytes`: per tensor, not 0. The signature is no longer that of the step.
Profile resized(Profile, const std::vector<std::uint64_t>& bytes);

}  // namespace sentinel::plan
