// The values of a sweep: "10%,20%", "10%..100%", "0..128GiB:32GiB", or several of these.
#pragma once

#include <string>
#include <vector>

namespace sentinel::cli {

// A range has ten values evenly from end to end, or one every step that it states after a colon.
// `whole`: numbers are rounded, and equal ones come once. Throws UsageError.
std::vector<std::string> sweep_values(const std::string& list, bool whole);

}  // namespace sentinel::cli
