// Trainings in a share of the memory, beside what people do today (tests/bench/live).
#pragma once

#include <string>
#include <vector>

namespace sentinel::cli {

// Runs tests/bench/live/live.py of the source tree that the command was built from, with that
// command; its exit status. `slow`: the disk that is measured. `arguments` are the script's. Throws
// Error where the tree is gone.
int bench_live(const std::string& slow, const std::vector<std::string>& arguments);

}  // namespace sentinel::cli
