// Turns options into variables, checks them, and sets up what the child loads.
#include "training/launch.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "base/text.h"
#include "cli/terminal.h"
#include "engine/io/executors.h"
#include "engine/io/slow_file.h"
#include "engine/host/node_calls.h"
#include "options/table.h"
#include "runtime/limit/workable.h"
#include "runtime/step/trial.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel::cli {
namespace {

namespace fs = std::filesystem;

Row row_of(const OptionRow& row, Launch& launch) {
  if (row.type == OptionType::flag)
    return {row.names, "", help_of(row), &launch.flags[row.variable]};
  return {.names = row.names,
          .value = row.value,
          .meaning = help_of(row),
          .into = &launch.values[row.variable],
          .alone = row.alone,
          .writes = row.type == OptionType::written,
          .words = words_of(row)};
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
  if (!options.tiers.nodes || on_one_node(options.moves.inject)) return;
  const auto warning = check_tiers(*options.tiers.nodes, numa_nodes());
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

bool is_path(const std::string& name) {
  return name.find('/') != name.npos || name.ends_with(".toml");
}

// As it goes into the environment.
std::string entered(const OptionRow& row, const std::string& value) {
  switch (row.type) {
    case OptionType::path:
    case OptionType::written:
      return absolute(value);
    case OptionType::paths:
      return all_absolute(value);
    case OptionType::name_or_path:
      return is_path(value) ? fs::absolute(value).string() : value;
    default:
      return value;
  }
}

void enter_values(const Launch& launch) {
  for (const auto& row : option_table()) {
    if (const auto flag = launch.flags.find(row.variable);
        flag != launch.flags.end() && flag->second)
      set(row.variable, *row.alone != '\0' ? row.alone : "1");
    if (launch.given(row.variable)) set(row.variable, entered(row, launch.values.at(row.variable)));
  }
  if (launch.given("SENTINEL_TIERS")) enter_tiers(launch.values.at("SENTINEL_TIERS"));
}

SessionOptions checked_options() {
  try {
    const auto options = options_from_environment();
    make_policy(options.policy);
    if (options.moves.io != kCuFile) parse_io_backend(options.moves.io);
    parse_late(options.moves.late);
    require_known_words();
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
  const auto verb = launch.mode == Mode::run ? kOfRun : kOfRecord;
  std::vector<Row> rows;
  for (const auto& row : option_table())
    if (row.verbs & verb) rows.push_back(row_of(row, launch));
  return rows;
}

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
  if (!any || !std::string_view(before).starts_with(inject.string()))
    set("PYTHONPATH", inject.string() + (any ? std::string(":") + before : ""));
  set("SENTINEL_HOME", home);
  set("SENTINEL_PYTHON_DIR", home / "python");
  set("SENTINEL_LIBRARY", library);
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
