// Holds the rows, and checks at compile time that none contradicts its type.
#include "options/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "options/session_options.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel {
namespace {

using enum OptionType;

template <auto kField>
constexpr auto& at(SessionOptions& options) {
  return options.*kField;
}

template <auto kGroup, auto kField>
constexpr auto& in(SessionOptions& options) {
  return options.*kGroup.*kField;
}

// In the order of the help. A row that names no field is read by hand in options.cpp.
constexpr OptionRow kTable[] = {
    {.names = "-o,--output",
     .variable = "SENTINEL_OUTPUT",
     .type = written,
     .value = "FILE",
     .otherwise = "record: `profile.sentinel`; run: none",
     .verbs = kOfBoth,
     .help = "where the profile goes (%p: process id, %r: rank)",
     .more =
         "What is recorded so far comes there whole, time and again. Ranks that would write one "
         "file have their ranks in its name, and spawned processes their numbers",
     .into = at<&SessionOptions::output>},
    {.names = "--fast",
     .variable = "SENTINEL_FAST",
     .value = "N%|BYTES",
     .otherwise = "no limit, or a memory cgroup's",
     .verbs = kOfRun,
     .help = "budget of fast memory: a share (20%) or a size (2G)",
     .absent = "a memory cgroup's",
     .more = "A share is of the peak of live tensors"},
    {.names = "--policy",
     .variable = "SENTINEL_POLICY",
     .type = policy,
     .value = "NAME",
     .fallback = "sentinel",
     .verbs = kOfRun,
     .help = "policy that makes the plan",
     .more =
         "Without the option, `auto` makes it where tensors can be made again and the simulator "
         "says that its step is shorter by 5 %. On a GPU also `deepum` and `lru`, which make none "
         "and go by what is missing",
     .into = at<&SessionOptions::policy>},
    {.names = "--no-recompute",
     .variable = "SENTINEL_RECOMPUTE",
     .type = flag,
     .fallback = "1",
     .verbs = kOfRun,
     .help = "plans move tensors only, and drop none to compute it again",
     .more =
         "Without it they may, with PyTorch on the processor and an SSD as the slow tier, or on a "
         "GPU while PyTorch's algorithms are deterministic, where the simulator finds the plan "
         "better so; `auto`, `home`, `capuchin`, `superneurons` and `tensile` make such plans",
     .words = "0|1",
     .alone = "0",
     .into = in<&SessionOptions::moves, &MoveOptions::recompute>},
    {.names = "--profile",
     .variable = "SENTINEL_PROFILE",
     .type = path,
     .value = "FILE",
     .verbs = kOfRun,
     .help = "stored profile to start from",
     .into = at<&SessionOptions::profile>},
    {.names = "--plan",
     .variable = "SENTINEL_PLAN",
     .type = path,
     .value = "FILE",
     .verbs = kOfRun,
     .help = "stored plan to start from",
     .into = at<&SessionOptions::plan>},
    {.names = "--slow",
     .variable = "SENTINEL_DIR",
     .type = paths,
     .value = "DIR,...",
     .fallback = "/var/tmp",
     .verbs = kOfRun,
     .help = "directory of the slow tier",
     .more = "Of several disks: A,B; tensors' blocks lie on them in turn",
     .into = in<&SessionOptions::tiers, &TierOptions::slow_directory>},
    {.names = "--allow-tmpfs",
     .variable = "SENTINEL_ALLOW_TMPFS",
     .type = flag,
     .fallback = "0",
     .verbs = kOfRun,
     .help = "accept a slow tier that lies in memory",
     .into = in<&SessionOptions::tiers, &TierOptions::allow_tmpfs>},
    {.names = "--tiers",
     .variable = "SENTINEL_TIERS",
     .value = "TIERS",
     .verbs = kOfBoth,
     .help = "NUMA nodes: fast=node0,slow=node1; a GPU: fast=gpu0,slow=host; or slow=DIR,...",
     .more = "`fast=nodeA,slow=nodeB` takes two NUMA nodes as tiers, `fast=gpuN,slow=host` a GPU's "
             "memory over the host's; `slow=DIR` is the same as `--slow DIR`"},
    {.names = "--granule",
     .variable = "SENTINEL_GRANULE",
     .type = bytes,
     .value = "BYTES",
     .fallback = "auto",
     .verbs = kOfRun,
     .help = "unit in which memory moves: between NUMA nodes 4K, 2M, or auto; a GPU's 2M to 64M",
     .more = "`auto` between nodes: 2M where there are huge pages, else 4K. A GPU's chunks are a "
             "power of two, with `auto` 2M: larger ones take fewer calls of the driver and waste "
             "more of the budget at tensors' ends. Each is measured as a machine of its own",
     .words = "auto|4K|2M|4M|8M|16M|32M|64M"},
    {.names = "--summary",
     .variable = "SENTINEL_SUMMARY",
     .type = written,
     .value = "FILE",
     .verbs = kOfRun,
     .help = "where the JSON summary of a run goes",
     .more = "`%p` in the name is the process id, `%r` its rank (0 without a launcher). Ranks that "
             "would write one file have their ranks in its name, and spawned processes "
             "their numbers",
     .into = at<&SessionOptions::summary>},
    {.names = "--metrics",
     .variable = "SENTINEL_METRICS",
     .type = written,
     .value = "FILE",
     .verbs = kOfRun,
     .help = "file of Prometheus's text format, renewed once a second while steps end",
     .more = "For node_exporter's textfile collector, which reads names that end with .prom. "
             "Ranks and spawned processes have names of their own, as with `--summary`",
     .into = at<&SessionOptions::metrics>},
    {.names = "--broker",
     .variable = "SENTINEL_BROKER",
     .type = name_or_path,
     .value = "PATH",
     .otherwise = "the training has its memory alone",
     .verbs = kOfRun,
     .help = "share fast memory with other trainings, as the broker at this socket divides it",
     .more = "`auto`, or no value, is the socket below $XDG_RUNTIME_DIR. `--fast` is then the most "
             "that this training takes. See `sentinel broker`",
     .words = "auto",
     .alone = "auto"},
    {.names = "--share",
     .variable = "SENTINEL_SHARE",
     .type = bytes,
     .value = "BYTES",
     .verbs = kOfRun,
     .help = "with --broker: start a broker of so much for all jobs, where none listens",
     .more = "It ends ten seconds after its last job",
     .into = in<&SessionOptions::sharing, &SharingOptions::bytes>},
    {.names = "--broker-wait",
     .variable = "SENTINEL_BROKER_WAIT",
     .type = number,
     .value = "SECONDS",
     .otherwise = "without end",
     .verbs = kOfRun,
     .help = "with --broker: how long to wait for a first grant; then the run ends with 125",
     .least = 0,
     .most = 10'000'000,
     .into = in<&SessionOptions::sharing, &SharingOptions::wait_s>},
    {.names = "--priority",
     .variable = "SENTINEL_PRIORITY",
     .type = number,
     .value = "N",
     .fallback = "1",
     .verbs = kOfRun,
     .help = "with --broker: the weight of this training where memory is divided",
     .least = 1,
     .most = 1000,
     .into = in<&SessionOptions::sharing, &SharingOptions::priority>},
    {.names = "--late",
     .variable = "SENTINEL_LATE",
     .type = choice,
     .value = "HOW",
     .fallback = "try",
     .verbs = kOfRun,
     .help = "late promotions between NUMA tiers: wait, leave, or try both",
     .more = "`leave` uses what is late in slow memory; `try` keeps the better of both",
     .words = "try|wait|leave",
     .into = in<&SessionOptions::moves, &MoveOptions::late>},
    {.names = "--inspect",
     .variable = "SENTINEL_INSPECT",
     .type = flag,
     .fallback = "0",
     .verbs = kOfRun,
     .help = "the summary says on which node the bytes lie",
     .more = "They are looked for at each step's end",
     .into = in<&SessionOptions::counting, &CountingOptions::inspect>},
    {.names = "--watch",
     .variable = "SENTINEL_WATCH",
     .type = number,
     .value = "N",
     .fallback = "0",
     .verbs = kOfRun,
     .help = "count by node in every Nth steady step too (kernel source), for measurements",
     .more = "The counts are the summary's `openings`. On two nodes, or without `--fast`",
     .least = 0,
     .most = 1u << 20,
     .into = in<&SessionOptions::counting, &CountingOptions::watch_every>},
    {.names = "--gpu-memory",
     .variable = "SENTINEL_GPU_MEMORY",
     .type = choice,
     .value = "HOW",
     .fallback = "auto",
     .verbs = kOfRun,
     .help = "how a GPU's memory is had: pools; managed, which all tensors have to fit; or auto, "
             "which of them moves faster",
     .more = "Pools lie behind fixed addresses. Managed memory moves by prefetches; all tensors "
             "together have to fit into what the device has free, less 2 % (512 MiB at least, an "
             "eighth at most). `auto`: managed memory where it was measured as faster and a stored "
             "profile tells that three times its peak fit there, else pools",
     .words = "pools|managed|auto",
     .into = in<&SessionOptions::gpu, &GpuOptions::memory>},
    {.names = "--host-memory",
     .variable = "SENTINEL_HOST_MEMORY",
     .type = bytes,
     .value = "BYTES",
     .otherwise = "all",
     .verbs = kOfRun,
     .help = "beside a GPU: the host's memory for tensors; what exceeds it lies in the slow tier's "
             "directory",
     .into = in<&SessionOptions::gpu, &GpuOptions::host_bytes>},
    {.names = "--node-memory",
     .variable = "SENTINEL_NODE_MEMORY",
     .type = bytes,
     .value = "BYTES",
     .otherwise = "all",
     .verbs = kOfRun,
     .help = "of two NUMA nodes: the slow one's memory for tensors; what exceeds it lies in the "
             "slow tier's directory",
     .into = in<&SessionOptions::tiers, &TierOptions::node_bytes>},
    {.names = "--machine",
     .variable = "SENTINEL_MACHINE",
     .type = name_or_path,
     .value = "NAME|FILE",
     .otherwise = "as measured",
     .verbs = kOfRun,
     .help = "machine file for planning",
     .absent = "as measured",
     .into = at<&SessionOptions::machine>},
    {.names = "--io",
     .variable = "SENTINEL_IO",
     .type = choice,
     .value = "BACKEND",
     .fallback = "auto",
     .verbs = kOfRun,
     .help = "auto, uring or threads; cufile: a GPU reads and writes the file below the host's "
             "memory itself",
     .more = "This is how the SSD is reached. `cufile` takes GPUDirect Storage and `--host-memory`",
     .words = "auto|uring|threads|cufile",
     .into = in<&SessionOptions::moves, &MoveOptions::io>},
    {.names = "--move",
     .variable = "SENTINEL_MOVE",
     .type = choice,
     .value = "HOW",
     .fallback = "auto",
     .verbs = kOfRun,
     .help = "auto, or copy: as on kernels without UFFDIO_MOVE",
     .words = "auto|copy",
     .into = in<&SessionOptions::moves, &MoveOptions::move>},
    {.names = "--depth",
     .variable = "SENTINEL_DEPTH",
     .type = number,
     .value = "N",
     .fallback = "8",
     .verbs = kOfRun,
     .help = "transfers in flight, each way",
     .least = 1,
     .most = 256,
     .into = in<&SessionOptions::moves, &MoveOptions::depth>},
    {.names = "--checksum",
     .variable = "SENTINEL_CHECKSUM",
     .type = choice,
     .value = "LEVEL",
     .fallback = "sampled",
     .verbs = kOfRun,
     .help = "checksums of what lies in the slow tier's file: full (every byte), sampled (64 bytes "
             "of each 4 KiB), or off",
     .words = "off|sampled|full",
     .alone = "full"},
    {.names = "--rated-tb",
     .variable = "SENTINEL_RATED_TB",
     .type = number,
     .value = "N",
     .fallback = "600",
     .verbs = kOfRun,
     .help = "terabytes that the slow tier's drive may be written",
     .more = "They stand in its data sheet; the end of a run tells how long the drive lasts",
     .least = 1,
     .most = 1'000'000,
     .into = in<&SessionOptions::moves, &MoveOptions::rated_tb>},
    {.names = "--window",
     .variable = "SENTINEL_WINDOW",
     .type = number,
     .value = "PAGES",
     .otherwise = "the last-level cache",
     .verbs = kOfBoth,
     .help = "W in pages; default: the last-level cache",
     .least = 1,
     .most = 1u << 24,
     .into = in<&SessionOptions::counting, &CountingOptions::window_pages>},
    {.names = "--exact",
     .variable = "SENTINEL_EXACT",
     .type = flag,
     .fallback = "0",
     .verbs = kOfBoth,
     .help = "count every page of every tensor",
     .into = in<&SessionOptions::counting, &CountingOptions::exact>},
    {.names = "--count",
     .variable = "SENTINEL_COUNT",
     .type = choice,
     .value = "HOW",
     .fallback = "auto",
     .verbs = kOfBoth,
     .help = "auto, kernel, rwp, userfaultfd; samples: those the processor takes; cupti: a GPU's "
             "page faults; ops: op inputs and outputs",
     .more = "`kernel` is the patched one; `rwp` is read-write protection of userfaultfd, which "
             "kernels after Linux 7.2 are to have and which needs no shared memory; `samples` are "
             "of loads and stores; `cupti` is CUDA's "
             "profiling interface and counts in managed memory; with `ops` nobody counts, and op "
             "inputs and outputs are taken for accesses. `auto`: the kernel where it can, else "
             "rwp, else userfaultfd; on a GPU nobody, unless asked",
     .words = "auto|kernel|rwp|userfaultfd|samples|cupti|ops",
     .into = in<&SessionOptions::counting, &CountingOptions::source>},
    {.names = "--arena",
     .variable = "SENTINEL_ARENA",
     .type = bytes,
     .value = "BYTES",
     .fallback = "256G",
     .verbs = kOfBoth,
     .help = "addresses to reserve for tensors",
     .more = "They are no memory",
     .into = in<&SessionOptions::tiers, &TierOptions::arena_bytes>},
    {.names = "--strict",
     .variable = "SENTINEL_STRICT",
     .type = flag,
     .fallback = "0",
     .verbs = kOfRun,
     .help = "end with 125 where no plan was made or training went on unmanaged",
     .more = "Without it a line says so, and the status is the command's",
     .into = at<&SessionOptions::strict>},
    {.names = "--quiet",
     .variable = "SENTINEL_QUIET",
     .type = flag,
     .fallback = "0",
     .verbs = kOfBoth,
     .help = "say nothing but errors",
     .into = at<&SessionOptions::quiet>},

    {.variable = "SENTINEL_STATUS",
     .otherwise = "`sentinel` in the user's runtime directory, else `/dev/shm/sentinel-UID`",
     .help = "folder in which sessions publish their figures for `sentinel top`",
     .more = "It is made where it is missing. Nothing is published in a folder that is not the "
             "user's own, or to which others may write. With `off` nothing is published at all"},
    {.variable = "SENTINEL_CUDA",
     .fallback = "libcuda.so.1",
     .help = "the CUDA driver's library",
     .into = in<&SessionOptions::gpu, &GpuOptions::cuda>},
    {.variable = "SENTINEL_CUPTI",
     .fallback = "libcupti.so",
     .help = "the library of CUDA's profiling interface",
     .more = "`.13` and `.12` are tried, too",
     .into = in<&SessionOptions::gpu, &GpuOptions::cupti>},
    {.variable = "SENTINEL_CUFILE",
     .fallback = "libcufile.so.0",
     .help = "the library of GPUDirect Storage",
     .into = in<&SessionOptions::gpu, &GpuOptions::cufile>},
    {.variable = "SENTINEL_MODE",
     .type = choice,
     .otherwise = "Sentinel is not active",
     .help = "record, run, or arena: allocate only, to compare with",
     .more = "The verb sets it",
     .words = "record|run|arena",
     .internal = true},
    {.variable = "SENTINEL_COMMAND",
     .help = "the program's command line, for the profile",
     .more = "The verb sets it",
     .internal = true,
     .into = at<&SessionOptions::command>},
    {.variable = "SENTINEL_INJECT",
     .help = "fault to inject, for tests (write:3:EIO)",
     .internal = true,
     .into = in<&SessionOptions::moves, &MoveOptions::inject>},
};

// Calls take(word) for each of "auto|copy".
template <class Take>
constexpr void each_word(std::string_view words, Take take) {
  while (!words.empty()) {
    const auto end = std::min(words.find('|'), words.size());
    take(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
}

constexpr bool has_word(std::string_view words, std::string_view wanted) {
  bool found = false;
  each_word(words, [&](std::string_view word) { found |= word == wanted; });
  return found;
}

constexpr bool is_line(std::string_view text) {
  return text.find('\n') == text.npos && !text.ends_with('.');
}

constexpr bool fits_type(const OptionRow& row) {
  const std::string_view value = row.value, fallback = row.fallback, words = row.words,
                         alone = row.alone;
  if ((row.type == number) != (row.most != 0)) return false;
  if (row.type == flag)
    return value.empty() && (fallback == "1" ? alone == "0" : fallback == "0" && alone.empty());
  if (row.type == choice) return !words.empty() && (fallback.empty() || has_word(words, fallback));
  return true;
}

constexpr bool is_sound(const OptionRow& row) {
  const std::string_view variable = row.variable, fallback = row.fallback,
                         otherwise = row.otherwise, alone = row.alone, help = row.help,
                         value = row.value;
  const bool is_option = *row.names != '\0', takes_value = is_option && row.type != flag;
  return variable.starts_with("SENTINEL_") && !help.empty() &&
         (is_line(help) || help.ends_with("...")) && is_line(row.more) &&
         is_option == (row.verbs != kOfNone) && takes_value == !value.empty() &&
         (fallback.empty() || otherwise.empty()) && (alone.empty() || has_word(row.words, alone)) &&
         fits_type(row);
}

constexpr bool is_sound_table() {
  for (const auto& row : kTable) {
    if (!is_sound(row)) return false;
    for (const auto& other : kTable)
      if (&other != &row && std::string_view(other.variable) == row.variable) return false;
  }
  return true;
}
static_assert(is_sound_table(), "a row contradicts its type, or two rows have one variable");

}  // namespace

std::span<const OptionRow> option_table() { return kTable; }

const OptionRow& option_row(std::string_view variable) {
  for (const auto& row : kTable)
    if (row.variable == variable) return row;
  throw Error(fmt::format("no option has the variable {}", variable));
}

std::string help_of(const OptionRow& row) { return help_of(row, row.absent); }

std::string help_of(const OptionRow& row, std::string_view absent) {
  return absent.empty() ? row.help : fmt::format("{}; without it, {}", row.help, absent);
}

std::string flag_of(const OptionRow& row) {
  const std::string_view names = row.names;
  if (names.empty()) return row.variable;
  return std::string(names.substr(names.rfind(',') + 1));  // npos + 1 is 0
}

std::vector<std::string> words_of(const OptionRow& row) {
  if (row.type == policy) return {policy_names().begin(), policy_names().end()};
  std::vector<std::string> words;
  each_word(row.words, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

std::string value_of(const OptionRow& row) {
  const char* set = std::getenv(row.variable);
  return set != nullptr && *set != '\0' ? set : row.fallback;
}

void require_known_words() {
  for (const auto& row : kTable) {
    const auto value = value_of(row);
    if (row.type == choice && !value.empty() && !has_word(row.words, value))
      throw Error(fmt::format("{} \"{}\" is unknown; choose from: {}", flag_of(row), value,
                              fmt::join(words_of(row), ", ")));
  }
}

}  // namespace sentinel
