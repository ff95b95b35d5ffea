// Opens a solver's library under the name that this system has it by, or the copy that is installed
// beside Sentinel.
#pragma once

#include <span>

namespace sentinel::plan {

// The newest names first. Null where there is none of them. The library stays open.
void* open_solver(std::span<const char* const> names);

}  // namespace sentinel::plan
