// What this machine and this process's memory cgroup allow.
#pragma once

#include <cstdint>
#include <optional>

namespace sentinel {

std::uint64_t physical_bytes();
// Bytes that may still be charged to this process's memory cgroup (v1 or v2); none: no limit.
std::optional<std::uint64_t> cgroup_headroom();
unsigned thread_count();  // that may compute

}  // namespace sentinel
