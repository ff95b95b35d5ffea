#pragma once

#include <cstdint>

#include "sentinel/profile.h"

namespace sentinel {

// ProfileMeta::signature of an imported step: a hash of op names, operands and sizes.
std::uint64_t step_signature(const Profile&);

}  // namespace sentinel
