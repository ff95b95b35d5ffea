#pragma once

#include <string>

#include "sentinel/profile.h"

namespace sentinel {

// A stored profile or a tensor trace, told apart by content. Throws Error as their readers do.
Profile read_any(const std::string& path);

}  // namespace sentinel
