#include "execute/limits.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

namespace sentinel {
namespace {

constexpr std::uint64_t kNoLimit = 1ull << 60;  // cgroup v1 prints a number of that size for none

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

std::optional<std::uint64_t> headroom(const std::string& directory, const char* limit,
                                      const char* usage) {
  const auto most = read_number(directory + "/" + limit),
             used = read_number(directory + "/" + usage);
  if (!most || !used || *most >= kNoLimit) return std::nullopt;
  return *most > *used ? *most - *used : 0;
}

}  // namespace

std::uint64_t physical_bytes() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

// Lines of /proc/self/cgroup: "4:memory:/path" (v1), "0::/path" (v2).
std::optional<std::uint64_t> cgroup_headroom() {
  std::ifstream file("/proc/self/cgroup");
  std::optional<std::uint64_t> least;
  for (std::string line; std::getline(file, line);) {
    const auto path = line.substr(std::min(line.size(), line.find(':', line.find(':') + 1) + 1));
    std::optional<std::uint64_t> left;
    if (line.find(":memory:") != line.npos)
      left = headroom("/sys/fs/cgroup/memory" + path, "memory.limit_in_bytes",
                      "memory.usage_in_bytes");
    else if (line.starts_with("0::"))
      left = headroom("/sys/fs/cgroup" + path, "memory.max", "memory.current");
    if (left) least = std::min(least.value_or(*left), *left);
  }
  return least;
}

unsigned thread_count() { return std::max(1u, std::thread::hardware_concurrency()); }

}  // namespace sentinel
