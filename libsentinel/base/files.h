// Small files, such as those of /proc and /sys.
#pragma once

#include <filesystem>
#include <string>

namespace sentinel {

std::string first_line(const std::filesystem::path&);  // empty where there is none

}  // namespace sentinel
