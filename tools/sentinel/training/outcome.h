// What a run says at its end where it did not do what it was asked for.
#pragma once

#include <string>
#include <vector>

#include "runtime/limit/tally.h"

namespace sentinel::cli {

// In a line, why no limit held in some training of the command, or why no training was seen; empty
// where all is as asked. `limited`: a limit was asked for, or a memory cgroup has one.
std::string shortfall(const Tally::Counts&, bool limited, const std::vector<std::string>& command);

}  // namespace sentinel::cli
