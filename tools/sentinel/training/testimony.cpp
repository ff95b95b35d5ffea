// Reads hashes, and compares them line by line.
#include "training/testimony.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "sentinel/error.h"

namespace sentinel::cli {
namespace {

namespace fs = std::filesystem;

Testimony::Hash read_line(const std::string& line, const fs::path& file) {
  const auto first = line.find('\t'), second = line.find('\t', first + 1);
  Testimony::Hash hash;
  if (second != line.npos) std::from_chars(line.data(), line.data() + first, hash.step);
  if (hash.step == 0)
    throw Error(fmt::format("{} has a line that no witness writes", file.string()));
  hash.tensor = line.substr(first + 1, second - first - 1);
  hash.hash = line.substr(second + 1);
  return hash;
}

}  // namespace

std::uint64_t Testimony::steps() const {
  std::uint64_t least = ~0ull;
  for (const auto& [process, hashes] : processes)
    least = std::min(least, hashes.empty() ? 0 : hashes.back().step);
  return empty() ? 0 : least;
}

std::size_t Testimony::tensors() const {
  std::size_t count = 0;
  for (const auto& [process, hashes] : processes)
    count += static_cast<std::size_t>(std::ranges::count(hashes, steps(), &Hash::step));
  return count;
}

Testimony read_testimony(const fs::path& prefix) {
  Testimony testimony;
  const auto begin = prefix.filename().string() + ".";
  for (const auto& entry : fs::directory_iterator(prefix.parent_path())) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with(begin)) continue;
    std::ifstream file(entry.path());
    auto& hashes = testimony.processes[name.substr(begin.size())];
    for (std::string line; std::getline(file, line);)
      hashes.push_back(read_line(line, entry.path()));
  }
  return testimony;
}

std::optional<Difference> first_difference(const Testimony& one, const Testimony& other) {
  std::optional<Difference> first;
  const auto found = [&](const std::string& process, const Testimony::Hash& at, bool missing) {
    if (!first || at.step < first->step) first = {process, at.step, missing ? "" : at.tensor};
  };
  for (const auto* each : {&one, &other}) {
    const auto& beside = each == &one ? other : one;
    for (const auto& [process, hashes] : each->processes) {
      const auto at = beside.processes.find(process);
      const std::size_t known = at == beside.processes.end() ? 0 : at->second.size();
      for (std::size_t i = 0; i < hashes.size(); ++i) {
        const bool missing = i >= known;
        if (!missing && hashes[i].tensor == at->second[i].tensor &&
            hashes[i].hash == at->second[i].hash)
          continue;
        found(process, hashes[i], missing);
        break;
      }
    }
  }
  return first;
}

std::string in_words(const Difference& difference, bool several_processes) {
  const auto where = several_processes ? fmt::format(" of {}", difference.process) : "";
  if (difference.tensor.empty())
    return fmt::format("step {}{}, which one of them has not made", difference.step, where);
  return fmt::format("step {}{} in {}", difference.step, where, difference.tensor);
}

}  // namespace sentinel::cli
