// A broker's list of jobs: who has what of its memory, and who waits.
#pragma once

#include <string>

namespace sentinel::cli {

// Of the JSON that a broker sends, with the traffic that each job's session publishes: for a
// person, or as JSON. Throws Error.
std::string print_jobs(const std::string& listing, bool as_json);

}  // namespace sentinel::cli
