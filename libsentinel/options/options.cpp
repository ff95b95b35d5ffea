#include "options/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/files.h"
#include "engine/gpu/host_store.h"
#include "engine/granule.h"
#include "engine/io/slow_file.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

std::string value_of(std::string_view variable) {
  const auto row = std::find_if(kOptionTable.begin(), kOptionTable.end(),
                                [&](const OptionRow& r) { return r.variable == variable; });
  const char* set = std::getenv(row->variable);
  return set != nullptr && *set != '\0' ? set : row->fallback;
}

// "SENTINEL_ALLOW_TMPFS": "--allow-tmpfs".
std::string option_of(std::string_view variable) {
  std::string option = "--";
  for (const char c : variable.substr(std::string_view("SENTINEL_").size()))
    option += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return option;
}

std::uint64_t number_of(std::string_view variable, std::uint64_t least, std::uint64_t most) {
  const auto text = value_of(variable);
  std::uint64_t number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc() || *end != '\0' || number < least || number > most)
    throw Error(fmt::format("{} ({}): \"{}\" is not a whole number from {} to {}",
                            option_of(variable), variable, text, least, most));
  return number;
}

Mode mode_of(const std::string& text) {
  if (text.empty()) return Mode::none;
  if (text == "record") return Mode::record;
  if (text == "run") return Mode::run;
  if (text == "arena") return Mode::arena;
  throw Error(fmt::format("SENTINEL_MODE=\"{}\" is not record, run or arena", text));
}

std::string with_pid(std::string path) {
  if (const auto at = path.find("%p"); at != std::string::npos)
    path.replace(at, 2, std::to_string(getpid()));
  return path;
}

// Huge pages where there are any; 4 KiB, the paper's, where not.
std::uint64_t granule_of(const std::string& text) {
  if (text != "auto") {
    const auto bytes = parse_bytes(text);
    if (bytes != 4_KiB && bytes != kGranule)
      throw Error(fmt::format("--granule {}: NUMA tiers move 4K or 2M", text));
    return bytes;
  }
  const auto modes = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  return modes.empty() || modes.find("[never]") != modes.npos ? 4_KiB : kGranule;
}

ChecksumLevel checksums_of(const std::string& text, bool device_moves) {
  const auto level = parse_checksum_level(text);
  if (!device_moves) return level;
  if (level == ChecksumLevel::full)
    throw Error(
        "--checksum compares what passes the processor, and with --io cufile nothing does: leave "
        "one of them out");
  return ChecksumLevel::off;
}

// What a driver makes chunks of, and the host pins sixteen of at once.
std::uint64_t gpu_granule_of(const std::string& text) {
  if (text == "auto") return kGpuGranule;
  const auto bytes = parse_bytes(text);
  if (!std::has_single_bit(bytes) || bytes < kGpuGranule || bytes > 64_MiB)
    throw Error(
        fmt::format("--granule {}: a GPU's memory moves by a power of two, 2M to 64M", text));
  return bytes;
}

// Of the name of a machine that is measured with another granule than most.
std::string granule_suffix(const SessionOptions& options) {
  return options.granule_bytes == kGpuGranule ? ""
                                              : fmt::format("-{}m", options.granule_bytes / 1_MiB);
}

}  // namespace

std::string local_machine(const SessionOptions& options) {
  const auto disks = split_directories(options.slow_directory).size();
  if (options.gpu)
    return fmt::format("local-gpu{}-{}{}", *options.gpu, options.gpu_memory,
                       granule_suffix(options));
  if (!options.nodes) return disks > 1 ? fmt::format("local-{}-disks", disks) : "local";
  return "local-" + print(*options.nodes) + (options.granule_bytes == 4_KiB ? "-4k" : "");
}

std::optional<int> parse_gpu_tier(const std::string& text) {
  constexpr std::string_view key = "fast=gpu", host = ",slow=host";
  if (text.find("fast=gpu") == text.npos) return std::nullopt;
  std::string_view rest = text;
  int device = -1;
  if (rest.starts_with(key)) {
    rest.remove_prefix(key.size());
    if (rest.ends_with(host)) rest.remove_suffix(host.size());
    const auto [end, ec] = std::from_chars(rest.data(), rest.data() + rest.size(), device);
    if (ec == std::errc() && end == rest.data() + rest.size() && device >= 0) return device;
  }
  throw Error(fmt::format(
      "--tiers {}: for a GPU's memory over the host's write fast=gpu0,slow=host", text));
}

SessionOptions options_from_environment() {
  SessionOptions options{.mode = mode_of(value_of("SENTINEL_MODE")),
                         .output = with_pid(value_of("SENTINEL_OUTPUT")),
                         .policy = value_of("SENTINEL_POLICY"),
                         .profile = value_of("SENTINEL_PROFILE"),
                         .plan = value_of("SENTINEL_PLAN"),
                         .slow_directory = value_of("SENTINEL_DIR"),
                         .summary = with_pid(value_of("SENTINEL_SUMMARY")),
                         .machine = value_of("SENTINEL_MACHINE"),
                         .io = value_of("SENTINEL_IO"),
                         .move = value_of("SENTINEL_MOVE"),
                         .count = value_of("SENTINEL_COUNT"),
                         .late = value_of("SENTINEL_LATE"),
                         .inject = value_of("SENTINEL_INJECT"),
                         .command = value_of("SENTINEL_COMMAND"),
                         .cuda = value_of("SENTINEL_CUDA"),
                         .cufile = value_of("SENTINEL_CUFILE"),
                         .cupti = value_of("SENTINEL_CUPTI"),
                         .gpu_memory = value_of("SENTINEL_GPU_MEMORY")};
  if (const auto fast = value_of("SENTINEL_FAST"); !fast.empty()) options.fast = parse_budget(fast);
  if (!value_of("SENTINEL_WINDOW").empty())
    options.window_pages = static_cast<std::uint32_t>(number_of("SENTINEL_WINDOW", 1, 1u << 24));
  options.exact = number_of("SENTINEL_EXACT", 0, 1) != 0;
  options.allow_tmpfs = number_of("SENTINEL_ALLOW_TMPFS", 0, 1) != 0;
  options.quiet = number_of("SENTINEL_QUIET", 0, 1) != 0;
  options.inspect = number_of("SENTINEL_INSPECT", 0, 1) != 0;
  options.watch_every = static_cast<std::uint32_t>(number_of("SENTINEL_WATCH", 0, 1u << 20));
  options.depth = number_of("SENTINEL_DEPTH", 1, 256);
  options.rated_tb = number_of("SENTINEL_RATED_TB", 1, 1'000'000);
  options.arena_bytes = round_up(parse_bytes(value_of("SENTINEL_ARENA")), kGranule);
  options.gpu = parse_gpu_tier(value_of("SENTINEL_TIERS"));
  if (!options.gpu) options.nodes = parse_node_tiers(value_of("SENTINEL_TIERS"));
  const auto granule = value_of("SENTINEL_GRANULE");
  options.granule_bytes = options.gpu     ? gpu_granule_of(granule)
                          : options.nodes ? granule_of(granule)
                                          : kGranule;
  if (options.gpu_memory != "pools" && options.gpu_memory != "managed" &&
      options.gpu_memory != "auto")
    throw Error(fmt::format("--gpu-memory {}: pools, managed or auto", options.gpu_memory));
  if (const auto host = value_of("SENTINEL_HOST_MEMORY"); !host.empty()) {
    if (!options.gpu || options.gpu_memory == "managed")
      throw Error("--host-memory is for a GPU's pools: give --tiers fast=gpu0,slow=host as well");
    options.host_bytes = round_down(parse_bytes(host), options.granule_bytes);
    const auto least = gpu::HostStore::kLeast * options.granule_bytes;
    if (options.host_bytes < least)
      throw Error(fmt::format("--host-memory {}: between a GPU and a file {} are the least", host,
                              print_bytes(least)));
  }
  if (options.io == kCuFile && options.host_bytes == 0) {
    if (options.mode == Mode::run)
      throw Error(
          "--io cufile is between a GPU and a file: give --tiers fast=gpu0,slow=host and "
          "--host-memory as well");
    options.io = "auto";  // a recording has no such file
  }
  options.checksums = checksums_of(value_of("SENTINEL_CHECKSUM"), options.io == kCuFile);
  return options;
}

}  // namespace sentinel
