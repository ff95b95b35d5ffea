// The arena that a session reserves: as large as was asked for, or as this process's limits allow.
#pragma once

#include <string>

#include "options/session_options.h"

namespace sentinel {

// Without --arena the size is what fits, and `arena_limit` names the limit where that is less than
// the table's. Throws Error, which names the limit and the largest --arena that fits, where one
// that was asked for does not fit, or hardly any does. A GPU's arena is left as it is.
SessionOptions with_fitting_arena(SessionOptions);

// One line for the person who runs the program; empty: no limit is in the way.
std::string told_of_arena(const SessionOptions&);

// Behind the failure `code` of a mapping or a file of the arena's size: what to do. Empty: nothing.
std::string arena_remedy(int code);

}  // namespace sentinel
