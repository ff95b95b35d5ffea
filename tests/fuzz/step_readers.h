// Readers of what describes a step or a machine to plan for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sentinel::fuzz {

void read_trace(std::string_view);
void read_stored_profile(std::string_view);
void read_machine(std::string_view);
void read_stored_plan(std::string_view);
void read_snapshot(std::string_view);

std::vector<std::string> traces();
std::vector<std::string> profiles();
std::vector<std::string> machines();
std::vector<std::string> plans();
std::vector<std::string> snapshots();

}  // namespace sentinel::fuzz
