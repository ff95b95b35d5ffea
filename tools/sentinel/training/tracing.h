// Tracing a command: what `trace` and `fit` share.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "sentinel/machine.h"

namespace sentinel::cli {

// Sets what the command's Python runs the trace with; its op times are estimates for the machine.
// One whose name begins with "local" is measured by the command's own Python. Throws Error where
// the machine's description has no rates.
void enter_trace(const std::filesystem::path& output, const std::string& machine);
// Takes that back.
void leave_trace();

}  // namespace sentinel::cli
