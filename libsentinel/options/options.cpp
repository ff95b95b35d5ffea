// Reads each variable by its row of the table, and those by hand that set several fields.
#include "options/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files.h"
#include "broker/wire/socket.h"
#include "engine/gpu/store/host_store.h"
#include "engine/granule.h"
#include "engine/host/ranks.h"
#include "engine/io/slow_file.h"
#include "options/table.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

std::string value_of(std::string_view variable) { return value_of(option_row(variable)); }

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

std::uint64_t number_of(const OptionRow& row, const std::string& text) {
  const bool flag = row.type == OptionType::flag;
  const std::uint64_t least = flag ? 0 : row.least, most = flag ? 1 : row.most;
  std::uint64_t number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc() || *end != '\0' || number < least || number > most)
    throw Error(fmt::format("{} ({}): \"{}\" is not a whole number from {} to {}", flag_of(row),
                            row.variable, text, least, most));
  return number;
}

// "record, run or arena".
std::string any_of(std::vector<std::string> words) {
  const auto last = std::move(words.back());
  words.pop_back();
  return fmt::format("{} or {}", fmt::join(words, ", "), last);
}

// One rank says it for all.
void tell_shared(SessionOptions& options, const std::string& pattern, const Rank& rank) {
  if (rank.rank.value_or(0) != 0 || !is_shared_name(pattern, rank)) return;
  options.rank_note =
      fmt::format("{} ranks would all write {}: each writes {}, where %r is its rank", rank.ranks,
                  pattern, with_rank(pattern));
}

// Puts a value into the row's field.
struct Read {
  const OptionRow& row;
  const std::string& text;
  SessionOptions& options;
  const Rank& rank;

  void operator()(std::monostate) const {}
  void operator()(FieldOf<std::string> field) const {
    field(options) = row.type == OptionType::written ? name_of_rank(text, rank) : text;
  }
  void operator()(FieldOf<bool> field) const { field(options) = number_of(row, text) != 0; }
  void operator()(FieldOf<std::uint32_t> field) const {
    field(options) = static_cast<std::uint32_t>(number_of(row, text));
  }
  void operator()(FieldOf<std::uint64_t> field) const {
    field(options) = row.type == OptionType::bytes ? parse_bytes(text) : number_of(row, text);
  }
};

Mode mode_of(const std::string& text) {
  if (text.empty()) return Mode::none;
  if (text == "record") return Mode::record;
  if (text == "run") return Mode::run;
  if (text == "arena") return Mode::arena;
  throw Error(fmt::format("SENTINEL_MODE=\"{}\" is not {}", text,
                          any_of(words_of(option_row("SENTINEL_MODE")))));
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

void read_tiers(SessionOptions& options) {
  const auto tiers = value_of("SENTINEL_TIERS"), granule = value_of("SENTINEL_GRANULE");
  options.gpu.device = parse_gpu_tier(tiers);
  if (!options.gpu.device) options.tiers.nodes = parse_node_tiers(tiers);
  options.tiers.granule_bytes = options.gpu.device    ? gpu_granule_of(granule)
                                : options.tiers.nodes ? granule_of(granule)
                                                      : kGranule;
}

void settle_host_memory(SessionOptions& options) {
  const auto ways = words_of(option_row("SENTINEL_GPU_MEMORY"));
  if (std::ranges::find(ways, options.gpu.memory) == ways.end())
    throw Error(fmt::format("--gpu-memory {}: {}", options.gpu.memory, any_of(ways)));
  const auto host = value_of("SENTINEL_HOST_MEMORY");
  if (host.empty()) return;
  if (!options.gpu.device || options.gpu.memory == "managed")
    throw Error("--host-memory is for a GPU's pools: give --tiers fast=gpu0,slow=host as well");
  options.gpu.host_bytes = round_down(options.gpu.host_bytes, options.tiers.granule_bytes);
  const auto least = gpu::HostStore::kLeast * options.tiers.granule_bytes;
  if (options.gpu.host_bytes < least)
    throw Error(fmt::format("--host-memory {}: between a GPU and a file {} are the least", host,
                            print_bytes(least)));
}

// Over a file a granule is a block, and nothing is counted in place.
void settle_node_memory(SessionOptions& options) {
  const auto bytes = value_of("SENTINEL_NODE_MEMORY");
  if (bytes.empty()) return;
  auto& tiers = options.tiers;
  if (!tiers.nodes)
    throw Error("--node-memory is for two NUMA nodes: give --tiers fast=node0,slow=node1 as well");
  if (value_of("SENTINEL_GRANULE") == "auto") tiers.granule_bytes = kGranule;
  if (tiers.granule_bytes != kGranule)
    throw Error("--node-memory: over a file memory moves by 2M; leave --granule out");
  constexpr std::uint64_t kLeast = 4 * kGranule;
  tiers.node_bytes = round_down(tiers.node_bytes, kGranule);
  if (tiers.node_bytes < kLeast)
    throw Error(fmt::format("--node-memory {}: between a node and a file {} are the least", bytes,
                            print_bytes(kLeast)));
}

void settle_io(SessionOptions& options) {
  if (options.moves.io == kCuFile && options.gpu.host_bytes == 0) {
    if (options.mode == Mode::run)
      throw Error(
          "--io cufile is between a GPU and a file: give --tiers fast=gpu0,slow=host and "
          "--host-memory as well");
    options.moves.io = "auto";  // a recording has no such file
  }
  options.moves.checksums =
      checksums_of(value_of("SENTINEL_CHECKSUM"), options.moves.io == kCuFile);
}

// Each rank of a launcher has its part of the bytes, and so has what a rank spawns. A plan was made
// for one rank's budget.
void settle_sharing(SessionOptions& options, const Rank& rank) {
  auto& sharing = options.sharing;
  sharing.broker = value_of("SENTINEL_BROKER");
  if (sharing.broker == "auto") sharing.broker = broker_path();
  if (options.mode != Mode::run) sharing.broker.clear();
  sharing.helper = !rank.spawned.empty();
  const bool drives = !options.gpu.device && !options.tiers.nodes;
  if (drives && options.mode == Mode::run && options.plan.empty())
    options.fast.bytes /= rank.beside;
  if (sharing.broker.empty()) return;
  if (rank.training != 0 && !sharing.helper)
    sharing.training = rank.training, sharing.ranks = rank.beside;
  if (!drives)
    throw Error("--broker shares memory over an SSD; leave it out with --tiers of a GPU or nodes");
  if (!options.plan.empty())
    throw Error(
        "--plan is made for one budget, and a broker's changes: give --profile with --broker");
}

// Of the name of a machine that is measured with another granule than most.
std::string granule_suffix(const SessionOptions& options) {
  return options.tiers.granule_bytes == kGpuGranule
             ? ""
             : fmt::format("-{}m", options.tiers.granule_bytes / 1_MiB);
}

}  // namespace

std::string local_machine(const SessionOptions& options) {
  const auto disks = split_directories(options.tiers.slow_directory).size();
  if (options.gpu.device)
    return fmt::format("local-gpu{}-{}{}", *options.gpu.device, options.gpu.memory,
                       granule_suffix(options));
  if (!options.tiers.nodes) return disks > 1 ? fmt::format("local-{}-disks", disks) : "local";
  return "local-" + print(*options.tiers.nodes) +
         (options.tiers.granule_bytes == 4_KiB ? "-4k" : "");
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
  SessionOptions options;
  options.mode = mode_of(value_of("SENTINEL_MODE"));
  const auto rank = rank_of_process();
  for (const auto& row : option_table()) {
    const auto text = value_of(row);
    if (text.empty()) continue;
    std::visit(Read{row, text, options, rank}, row.into);
    if (row.type == OptionType::written) tell_shared(options, text, rank);
  }
  if (const auto fast = value_of("SENTINEL_FAST"); !fast.empty()) options.fast = parse_budget(fast);
  options.tiers.arena_bytes = round_up(options.tiers.arena_bytes, kGranule);
  options.tiers.arena_asked = is_set("SENTINEL_ARENA");
  options.moves.recompute_asked = options.moves.recompute && is_set("SENTINEL_RECOMPUTE");
  options.better_policy = !is_set("SENTINEL_POLICY");
  read_tiers(options);
  settle_host_memory(options);
  settle_node_memory(options);
  settle_io(options);
  settle_sharing(options, rank);
  return options;
}

}  // namespace sentinel
