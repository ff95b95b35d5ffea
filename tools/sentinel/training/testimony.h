// What a run of `sentinel verify` has left behind: a hash of each parameter, gradient and optimizer
// state after each optimizer's step, in a file a process (torchplugin's _torch_verify.py).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sentinel::cli {

struct Testimony {
  struct Hash {
    std::uint64_t step = 0;  // from 1
    std::string tensor, hash;
  };
  std::map<std::string, std::vector<Hash>> processes;  // by rank

  bool empty() const { return processes.empty(); }
  std::uint64_t steps() const;  // the last that all processes have
  std::size_t tensors() const;  // of a step, all processes together
};

// The files whose names begin so. Throws Error where one is none of ours.
Testimony read_testimony(const std::filesystem::path& prefix);

struct Difference {
  std::string process;
  std::uint64_t step = 0;
  std::string tensor;  // empty: one of them has not made the step
};

// The first, by step and then in the order of the optimizer.
std::optional<Difference> first_difference(const Testimony&, const Testimony&);
std::string in_words(const Difference&, bool several_processes);

}  // namespace sentinel::cli
