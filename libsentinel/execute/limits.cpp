#include "execute/limits.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <thread>

namespace sentinel {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kNoLimit = 1ull << 60;  // cgroup v1 prints a number of that size for none

// What the two versions call the same things.
struct Names {
  const char *limit, *usage, *inactive, *active, *mapped;
};
constexpr Names kV1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                    "total_active_file", "total_mapped_file"};
constexpr Names kV2{"memory.max", "memory.current", "inactive_file", "active_file", "file_mapped"};

std::optional<std::uint64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// Of files' pages in memory, those that no process has mapped: the kernel drops them first.
std::uint64_t reclaimable(const fs::path& group, const Names& names) {
  std::map<std::string, std::uint64_t> bytes;
  std::ifstream file(group / "memory.stat");
  std::uint64_t number = 0;
  for (std::string key; file >> key >> number;) bytes[key] = number;
  const auto files = bytes[names.inactive] + bytes[names.active], mapped = bytes[names.mapped];
  return files - std::min(files, mapped);
}

std::optional<std::uint64_t> headroom(const fs::path& group, const Names& names) {
  const auto most = read_number(group / names.limit), used = read_number(group / names.usage);
  if (!most || !used || *most >= kNoLimit) return std::nullopt;
  const auto held = *used - std::min(*used, reclaimable(group, names));
  return *most - std::min(*most, held);
}

}  // namespace

std::uint64_t physical_bytes() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

// Lines of /proc/self/cgroup: "4:memory:/path" (v1), "0::/path" (v2). In a container the path may
// be the host's, of which only the last folder is there, as the root.
std::optional<std::uint64_t> cgroup_headroom(const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  const auto groups = root / "sys/fs/cgroup";
  std::optional<std::uint64_t> least;
  for (std::string line; std::getline(file, line);) {
    const bool v1 = line.find(":memory:") != line.npos;
    if (!v1 && !line.starts_with("0::")) continue;
    const auto at = line.find('/');
    fs::path path = at == line.npos ? fs::path() : fs::path(line.substr(at + 1));
    for (;; path = path.parent_path()) {
      const auto left = headroom((v1 ? groups / "memory" : groups) / path, v1 ? kV1 : kV2);
      if (left) least = std::min(least.value_or(*left), *left);
      if (path.empty()) break;
    }
  }
  return least;
}

unsigned thread_count() { return std::max(1u, std::thread::hardware_concurrency()); }

}  // namespace sentinel
