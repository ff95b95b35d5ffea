// Reads this machine's processor, cache and memory for a profile's record.
#include "trace/machine_record.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    // "model name" on x86; other architectures say "cpu" or "Processor", or nothing at all.
    const bool names_model = line.starts_with("model name") || line.starts_with("Processor");
    const auto colon = line.find(": ");
    if (names_model && colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

// Each cacheN/indexM folder holds "level" ("3") and "size" ("32768K").
std::uint64_t last_level_cache_bytes() {
  std::uint64_t bytes = 0;
  std::string deepest;
  std::error_code absent;
  for (const auto& entry :
       std::filesystem::directory_iterator("/sys/devices/system/cpu/cpu0/cache", absent)) {
    const std::string level = first_line(entry.path() / "level");
    const std::string size = first_line(entry.path() / "size");
    if (level.empty() || size.empty() || level < deepest) continue;
    deepest = level;
    bytes = parse_bytes(size);
  }
  if (bytes > 0) return bytes;
  const long level3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return level3 > 0 ? static_cast<std::uint64_t>(level3) : 0;
}

std::uint64_t memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<std::uint64_t>(pages) * page : 0;
}

}  // namespace

MachineRecord this_machine() {
  MachineRecord record;
  utsname names{};
  if (uname(&names) == 0) {
    record.hostname = names.nodename;
    record.kernel = names.release;
  }
  record.cpu = cpu_model();
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  record.cores = cores > 0 ? static_cast<std::uint32_t>(cores) : 0;
  record.memory_bytes = memory_bytes();
  try {
    record.llc_bytes = last_level_cache_bytes();
  } catch (const Error&) {  // a size in a form this kernel invented: unknown is better than none
  }
  return record;
}

}  // namespace sentinel
