// How large an arena this process's limits allow. An arena is addresses, no memory; but the kernel
// counts private ones against `ulimit -d` and strict overcommit, all of them against `ulimit -v`,
// and the memory file of counting and the slow tier's file against `ulimit -f`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

namespace sentinel {

struct ArenaRoom {
  std::uint64_t bytes = std::numeric_limits<std::uint64_t>::max();  // whole 2 MiB
  std::string limit;  // that is the closest, with its value; empty: none is set
};

// Half of what is left goes to the program, which grows. `root`: of the file system that tells what
// is used.
ArenaRoom arena_room(const std::filesystem::path& root = "/");

}  // namespace sentinel
