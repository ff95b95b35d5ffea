// What this machine and this process's memory cgroup allow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace sentinel {

std::uint64_t physical_bytes();
// Bytes that may still be charged to this process's memory cgroup (v1 or v2) and those above it,
// where files' pages that nobody has mapped count as free; none: no limit. `root`: of the file
// system that tells.
std::optional<std::uint64_t> cgroup_headroom(const std::filesystem::path& root = "/");
unsigned thread_count();  // that may compute

}  // namespace sentinel
