// Reads the launchers' variables, and puts ranks into names.
#include "engine/host/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <string_view>

namespace sentinel {
namespace {

std::optional<unsigned> number_in(std::string_view text) {
  unsigned number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end == text.data()) return std::nullopt;
  return number;
}

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::optional<unsigned> first_of(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto number = number_in(variable(name))) return number;
  return std::nullopt;
}

// Slurm's "2(x3),1": two tasks on each of three nodes, one on the fourth.
std::optional<unsigned> tasks_of_node(std::string_view list, unsigned node) {
  while (!list.empty()) {
    const auto part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(part.size() + 1, list.size()));
    const auto times = part.find("(x");
    const auto nodes = times == part.npos ? 1 : number_in(part.substr(times + 2)).value_or(1);
    if (node < nodes) return number_in(part);
    node -= nodes;
  }
  return std::nullopt;
}

// By what launchers tell all ranks, so that they find each other.
std::uint64_t training_of_variables() {
  std::string told;
  for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR",
                           "MASTER_PORT", "PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID"})
    if (const auto value = variable(name); !value.empty())
      told.append(name).append("=").append(value).append(" ");
  return told.empty() ? 0 : std::hash<std::string>{}(told) | 1;
}

// SLURM_PROCID is also set in a batch script, which is one process: srun's variables tell a step.
Rank of_slurm() {
  const auto ranks = number_in(variable("SLURM_STEP_NUM_TASKS"));
  if (!ranks) return {};
  const auto node = number_in(variable("SLURM_NODEID")).value_or(0);
  const auto beside = tasks_of_node(variable("SLURM_STEP_TASKS_PER_NODE"), node);
  return {
      .rank = number_in(variable("SLURM_PROCID")), .ranks = *ranks, .beside = beside.value_or(1)};
}

void replace(std::string& text, std::string_view what, const std::string& with) {
  for (auto at = text.find(what); at != text.npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
}

// Not of a process's own; a device or a pipe has no other name.
bool is_one_file(const std::string& pattern) {
  std::error_code none;
  const auto status = std::filesystem::status(pattern, none);
  return (!exists(status) || is_regular_file(status)) && pattern.find("%p") == pattern.npos;
}

std::string extended(const std::string& pattern, const std::string& part) {
  const std::filesystem::path path(pattern);
  return (path.parent_path() / path.stem()).string() + part + path.extension().string();
}

}  // namespace

Rank rank_of_process() {
  Rank rank{
      .rank = first_of({"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}),
      .ranks = first_of({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}).value_or(1),
      .beside = first_of({"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
                    .value_or(1)};
  if (!rank.rank) rank = of_slurm();
  if (!rank.rank) rank = {};
  if (rank.ranks == 0) rank.ranks = 1;
  if (rank.beside == 0 || rank.beside > rank.ranks) rank.beside = 1;
  if (rank.beside > 1) rank.training = training_of_variables();
  rank.spawned = variable("SENTINEL_SPAWNED");  // of Python's adaptor
  if (rank.spawned.find_first_not_of("0123456789.") != rank.spawned.npos) rank.spawned.clear();
  return rank;
}

bool is_shared_name(const std::string& pattern, const Rank& rank) {
  return rank.ranks > 1 && is_one_file(pattern) && pattern.find("%r") == pattern.npos;
}

std::string with_rank(const std::string& pattern) { return extended(pattern, ".rank%r"); }

std::string name_of_rank(const std::string& pattern, const Rank& rank) {
  auto name = is_shared_name(pattern, rank) ? with_rank(pattern) : pattern;
  if (!rank.spawned.empty() && is_one_file(pattern))
    name = extended(name, ".spawned" + rank.spawned);
  replace(name, "%p", std::to_string(getpid()));
  replace(name, "%r", std::to_string(rank.rank.value_or(0)));
  return name;
}

}  // namespace sentinel
