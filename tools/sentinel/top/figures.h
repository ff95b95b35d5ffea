// The figures of sessions as JSON, for other programs.
#pragma once

#include <string>
#include <vector>

#include "top/sessions.h"

namespace sentinel::cli {

std::string json_of(const std::vector<Session>&, double now_us);

}  // namespace sentinel::cli
