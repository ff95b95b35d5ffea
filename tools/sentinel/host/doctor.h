// What this machine can do, area by area; `doctor` prints it. Each finding that is not available
// says why and what to do about it.
#pragma once

#include <string>
#include <vector>

namespace sentinel::cli {

struct Finding {
  std::string name;
  bool available = false;
  std::string detail;  // what was found, or why it is not available
  std::string remedy;  // empty where nothing is to be done
};

using Findings = std::vector<Finding>;

Findings look_at_capture();
Findings look_at_slow_tier(const std::string& directory);
Findings look_at_memory();
Findings look_at_nodes();
Findings look_at_frameworks();
Findings look_at_hardware();

}  // namespace sentinel::cli
