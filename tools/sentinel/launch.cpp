#include "launch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/text.h"
#include "engine/io/executors.h"
#include "engine/io/slow_file.h"
#include "engine/numa/node_calls.h"
#include "runtime/trial.h"
#include "runtime/workable.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"
#include "terminal.h"

namespace sentinel::cli {
namespace {

namespace fs = std::filesystem;

enum Verbs : unsigned { kRecord = 1, kRun = 2, kBoth = 3 };
enum class Kind { text, path, written, paths, flag };

// Flag, variable, value, verbs. What each means stands in options/options.h.
struct LaunchRow {
  const char *names, *variable, *value;
  Verbs verbs;
  Kind kind = Kind::text;
  const char* alone = "";
};

constexpr LaunchRow kLaunchRows[] = {
    {"-o,--output", "SENTINEL_OUTPUT", "FILE", kBoth, Kind::written},
    {"--fast", "SENTINEL_FAST", "N%|BYTES", kRun},
    {"--policy", "SENTINEL_POLICY", "NAME", kRun},
    {"--profile", "SENTINEL_PROFILE", "FILE", kRun, Kind::path},
    {"--plan", "SENTINEL_PLAN", "FILE", kRun, Kind::path},
    {"--slow", "SENTINEL_DIR", "DIR,...", kRun, Kind::paths},
    {"--allow-tmpfs", "SENTINEL_ALLOW_TMPFS", "", kRun, Kind::flag},
    {"--tiers", "SENTINEL_TIERS", "TIERS", kBoth},
    {"--granule", "SENTINEL_GRANULE", "BYTES", kRun},
    {"--summary", "SENTINEL_SUMMARY", "FILE", kRun, Kind::written},
    {"--late", "SENTINEL_LATE", "HOW", kRun},
    {"--inspect", "SENTINEL_INSPECT", "", kRun, Kind::flag},
    {"--watch", "SENTINEL_WATCH", "N", kRun},
    {"--gpu-memory", "SENTINEL_GPU_MEMORY", "HOW", kRun},
    {"--host-memory", "SENTINEL_HOST_MEMORY", "BYTES", kRun},
    {"--machine", "SENTINEL_MACHINE", "NAME|FILE", kRun},
    {"--io", "SENTINEL_IO", "BACKEND", kRun},
    {"--move", "SENTINEL_MOVE", "HOW", kRun},
    {"--depth", "SENTINEL_DEPTH", "N", kRun},
    {"--checksum", "SENTINEL_CHECKSUM", "LEVEL", kRun, Kind::text, "full"},
    {"--rated-tb", "SENTINEL_RATED_TB", "N", kRun},
    {"--window", "SENTINEL_WINDOW", "PAGES", kBoth},
    {"--exact", "SENTINEL_EXACT", "", kBoth, Kind::flag},
    {"--count", "SENTINEL_COUNT", "HOW", kBoth},
    {"--arena", "SENTINEL_ARENA", "BYTES", kBoth},
    {"--quiet", "SENTINEL_QUIET", "", kBoth, Kind::flag},
};

Row row_of(const LaunchRow& row, Launch& launch) {
  const auto* option = std::find_if(
      kOptionTable.begin(), kOptionTable.end(),
      [&](const OptionRow& o) { return std::string_view(o.variable) == row.variable; });
  if (row.kind == Kind::flag) {
    constexpr std::string_view set_to = "1: ";  // what the variable's meaning begins with
    const std::string meaning(option->meaning);
    return {row.names, "", meaning.substr(meaning.starts_with(set_to) ? set_to.size() : 0),
            &launch.flags[row.variable]};
  }
  return {.names = row.names,
          .value = row.value,
          .meaning = option->meaning,
          .into = &launch.values[row.variable],
          .alone = row.alone,
          .writes = row.kind == Kind::written};
}

void set(const char* variable, const std::string& value) {
  if (setenv(variable, value.c_str(), 1) != 0) throw Error("could not set the environment", errno);
}

std::string absolute(const std::string& path) {
  return fs::absolute(path).lexically_normal().string();
}

std::string all_absolute(const std::string& paths) {
  std::string text;
  for (const auto& path : split_directories(paths)) {
    if (path.empty()) throw UsageError(fmt::format("\"{}\": a directory's name is missing", paths));
    text += (text.empty() ? "" : ",") + absolute(path);
  }
  return text;
}

// Two NUMA nodes, or a directory for the slow tier: fast memory is then what is left.
void enter_tiers(const std::string& tiers) {
  if (parse_gpu_tier(tiers) || parse_node_tiers(tiers)) return;
  constexpr std::string_view key = "slow=";
  if (!tiers.starts_with(key) || tiers.size() == key.size() ||
      tiers.find('=', key.size()) != tiers.npos)
    throw UsageError(
        fmt::format("--tiers {}: write fast=node0,slow=node1 for two NUMA nodes, "
                    "fast=gpu0,slow=host for a GPU, slow=DIR for an SSD, or slow=A,B for several",
                    tiers));
  set("SENTINEL_DIR", all_absolute(tiers.substr(key.size())));
}

void check_nodes(const SessionOptions& options) {
  if (!options.nodes || on_one_node(options.inject)) return;
  const auto warning = check_tiers(*options.nodes, numa_nodes());
  if (!warning.empty() && !options.quiet) say(warning);
}

std::string quoted(const std::string& word) {
  constexpr auto plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!word.empty() && word.find_first_not_of(plain) == word.npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// For people to read. The kernel takes no variable of more than 128 KiB.
std::string as_text(const std::vector<std::string>& command) {
  constexpr std::size_t kLongest = 32 << 10;
  std::string text;
  for (const auto& word : command) {
    text += (text.empty() ? "" : " ") + quoted(word);
    if (text.size() > kLongest) return printable(text, kLongest);
  }
  return text;
}

// Built or installed, the library and what goes into Python lie beside the command.
void enter_places() {
  const auto library_folder =
      fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib";
  const auto home = library_folder / "sentinel", library = library_folder / "libsentinel.so";
  const auto inject = home / "inject";
  for (const auto& part : {library, inject / "sitecustomize.py"})
    if (!fs::exists(part))
      throw Error(fmt::format(
          "{} is missing: the installation is incomplete; build or install again", part.string()));
  const char* before = std::getenv("PYTHONPATH");
  const bool any = before != nullptr && *before != '\0';
  set("PYTHONPATH", inject.string() + (any ? std::string(":") + before : ""));
  set("SENTINEL_HOME", home);
  set("SENTINEL_PYTHON_DIR", home / "python");
  set("SENTINEL_LIBRARY", library);
}

bool is_path(const std::string& machine) {
  return machine.find('/') != machine.npos || machine.ends_with(".toml");
}

void enter_values(const Launch& launch) {
  for (const auto& row : kLaunchRows) {
    if (row.kind == Kind::flag && launch.flags.contains(row.variable) &&
        launch.flags.at(row.variable))
      set(row.variable, "1");
    const auto value = launch.values.find(row.variable);
    if (value == launch.values.end() || value->second.empty()) continue;
    set(row.variable, row.kind == Kind::path || row.kind == Kind::written ? absolute(value->second)
                      : row.kind == Kind::paths ? all_absolute(value->second)
                                                : value->second);
  }
  if (launch.given("SENTINEL_TIERS")) enter_tiers(launch.values.at("SENTINEL_TIERS"));
  // A machine by name, or a file: only the file has a directory.
  if (const auto at = launch.values.find("SENTINEL_MACHINE");
      at != launch.values.end() && is_path(at->second))
    set("SENTINEL_MACHINE", fs::absolute(at->second));
}

void require_one_of(const char* option, const std::string& value,
                    std::initializer_list<const char*> known) {
  if (std::find(known.begin(), known.end(), value) == known.end())
    throw UsageError(fmt::format("{} \"{}\" is unknown; choose from: {}", option, value,
                                 fmt::join(known, ", ")));
}

SessionOptions checked_options() {
  try {
    const auto options = options_from_environment();
    make_policy(options.policy);
    if (options.io != kCuFile) parse_io_backend(options.io);
    require_one_of("--move", options.move, {"auto", "copy"});
    parse_late(options.late);
    require_one_of("--count", options.count,
                   {"auto", "kernel", "userfaultfd", "samples", kCupti, "ops"});
    return options;
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

bool Launch::given(const std::string& variable) const {
  const auto found = values.find(variable);
  return found != values.end() && !found->second.empty();
}

std::vector<Row> launch_rows(Launch& launch) {
  const auto verb = launch.mode == Mode::run ? kRun : kRecord;
  std::vector<Row> rows;
  for (const auto& row : kLaunchRows)
    if (row.verbs & verb) rows.push_back(row_of(row, launch));
  return rows;
}

SessionOptions enter_environment(const Launch& launch) {
  enter_places();
  set("SENTINEL_MODE", launch.mode == Mode::run ? "run" : "record");
  set("SENTINEL_COMMAND", as_text(launch.command));
  try {
    enter_values(launch);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  const auto options = checked_options();
  check_nodes(options);
  require_counting(options);
  return options;
}

}  // namespace sentinel::cli
