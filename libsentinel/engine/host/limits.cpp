// Reads the machine's memory, the cgroups' limits and use, and the number of threads.
#include "engine/host/limits.h"

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
  const char *limit, *throttle, *usage, *inactive, *active, *mapped;
};
constexpr Names kV1{.limit = "memory.limit_in_bytes",
                    .throttle = "",
                    .usage = "memory.usage_in_bytes",
                    .inactive = "total_inactive_file",
                    .active = "total_active_file",
                    .mapped = "total_mapped_file"};
constexpr Names kV2{.limit = "memory.max",
                    .throttle = "memory.high",
                    .usage = "memory.current",
                    .inactive = "inactive_file",
                    .active = "active_file",
                    .mapped = "file_mapped"};

std::optional<std::uint64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

std::uint64_t less(std::uint64_t a, std::uint64_t b) { return a - std::min(a, b); }

// Of files' pages in memory, those that no process has mapped: the kernel drops them first. Too few
// where shared memory is mapped, which counts as mapped too.
std::uint64_t reclaimable(const fs::path& group, const Names& names) {
  std::map<std::string, std::uint64_t> bytes;
  std::ifstream file(group / "memory.stat");
  std::uint64_t number = 0;
  for (std::string key; file >> key >> number;) bytes[key] = number;
  return less(bytes[names.inactive] + bytes[names.active], bytes[names.mapped]);
}

std::optional<std::uint64_t> headroom(const fs::path& group, const Names& names) {
  const auto most = std::min(read_number(group / names.limit).value_or(kNoLimit),
                             read_number(group / names.throttle).value_or(kNoLimit));
  const auto used = read_number(group / names.usage);
  if (most == kNoLimit || !used) return std::nullopt;
  return less(most, less(*used, reclaimable(group, names)));
}

// Of a line "4:cpu,memory:/path" (v1) or "0::/path" (v2): whether it is the one of memory.
const Names* version(const std::string& line) {
  const auto from = line.find(':'), to = line.find(':', from + 1);
  if (from == line.npos || to == line.npos) return nullptr;
  const auto controllers = "," + line.substr(from + 1, to - from - 1) + ",";
  if (controllers.find(",memory,") != controllers.npos) return &kV1;
  return line.starts_with("0::") ? &kV2 : nullptr;
}

}  // namespace

std::uint64_t physical_bytes() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

// In a container the path may be the host's, of which only the last folder is there, as the root.
std::optional<std::uint64_t> cgroup_headroom(const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  std::optional<std::uint64_t> least;
  for (std::string line; std::getline(file, line);) {
    const auto* names = version(line);
    if (names == nullptr) continue;
    const auto mount = root / "sys/fs/cgroup" / (names == &kV1 ? "memory" : "");
    const auto at = line.find('/');
    auto path = fs::path(at == line.npos ? "" : line.substr(at)).relative_path();
    for (;; path = path.parent_path()) {
      const auto left = headroom(mount / path, *names);
      if (left) least = std::min(least.value_or(*left), *left);
      if (path.empty()) break;
    }
  }
  return least;
}

unsigned thread_count() { return std::max(1u, std::thread::hardware_concurrency()); }

}  // namespace sentinel
