// Reads what a session is told from the environment, by the table of table.h.
#pragma once

#include <optional>
#include <string>

#include "options/session_options.h"

namespace sentinel {

SessionOptions options_from_environment();  // throws Error

// The device of `--tiers fast=gpu0,slow=host`. None: the text names no GPU. Throws Error where it
// names one and something else beside.
std::optional<int> parse_gpu_tier(const std::string& text);

// The machine to plan for, as measured here: of the tiers in use.
std::string local_machine(const SessionOptions&);

}  // namespace sentinel
