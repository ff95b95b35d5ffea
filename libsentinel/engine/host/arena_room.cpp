// Reads the limits of this process, and names the closest one.
#include "engine/host/arena_room.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "base/files.h"
#include "base/units.h"

namespace sentinel {
namespace {

namespace fs = std::filesystem;

// Copies of the arena that are mapped at once, at most: the arena and the frames' slots; while
// counting begins and ends, the memory file and what takes the arena's place; in a fork, the slow
// tier's file. The arena and the slots are private and may be written.
constexpr std::uint64_t kMapped = 5, kPrivate = 2;
constexpr std::uint64_t kProgram = 2;        // the program's part: one of so many
constexpr std::uint64_t kUnit = 2_MiB;       // of an arena: a granule over an SSD
constexpr std::uint64_t kEndOfFile = 4_KiB;  // behind the last slot of the slow tier's file

// "VmSize:     12345 kB", in bytes by name.
std::map<std::string, std::uint64_t> figures_in(const fs::path& path) {
  std::map<std::string, std::uint64_t> figures;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (colon != line.npos)
      figures[line.substr(0, colon)] = std::strtoull(line.c_str() + colon + 1, nullptr, 10) * 1_KiB;
  }
  return figures;
}

std::uint64_t left_of(std::uint64_t all, std::uint64_t used) { return all - std::min(all, used); }

class Closest {
 public:
  void limit(const char* name, int resource, std::uint64_t used, std::uint64_t parts) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    take(name, limit.rlim_cur, used, parts);
  }
  void take(const char* name, std::uint64_t all, std::uint64_t used, std::uint64_t parts) {
    const auto bytes = round_down(left_of(all, used) / parts, kUnit);
    if (bytes < room_.bytes) room_ = {bytes, fmt::format("{} ({})", name, print_bytes(all))};
  }
  ArenaRoom room() const { return room_; }

 private:
  ArenaRoom room_;
};

}  // namespace

ArenaRoom arena_room(const fs::path& root) {
  auto used = figures_in(root / "proc/self/status");
  Closest closest;
  closest.limit("ulimit -v", RLIMIT_AS, used["VmSize"], kMapped * kProgram);
  closest.limit("ulimit -d", RLIMIT_DATA, used["VmData"], kPrivate * kProgram);
  closest.limit("ulimit -f", RLIMIT_FSIZE, kEndOfFile, 1);
  if (first_line(root / "proc/sys/vm/overcommit_memory") == "2") {
    auto memory = figures_in(root / "proc/meminfo");
    closest.take("vm.overcommit_memory=2, CommitLimit", memory["CommitLimit"],
                 memory["Committed_AS"], kPrivate * kProgram);
  }
  return closest.room();
}

}  // namespace sentinel
