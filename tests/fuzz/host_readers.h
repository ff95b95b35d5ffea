// Readers of what processes of one machine tell each other, and of what the kernel and the
// environment tell them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sentinel::fuzz {

void read_message(std::string_view);  // packets of the broker's socket
void read_needs(std::string_view);    // the profile of a job, as a sealed memory file
void read_listing(std::string_view);  // of a broker's jobs
void read_the_ledger(std::string_view);
void read_status(std::string_view);   // of a session, and its screen
void read_hashes(std::string_view);   // of `sentinel verify`
void read_samples(std::string_view);  // a ring of perf events
void read_numa_maps(std::string_view);
void read_options(std::string_view);  // lines NAME=VALUE

std::vector<std::string> messages();
std::vector<std::string> needs();
std::vector<std::string> listings();
std::vector<std::string> ledgers();
std::vector<std::string> statuses();
std::vector<std::string> hashes();
std::vector<std::string> rings();
std::vector<std::string> maps();
std::vector<std::string> environments();

}  // namespace sentinel::fuzz
