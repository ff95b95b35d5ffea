// A profile with every field in use, and a folder for the files of one test.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "sentinel/error.h"
#include "sentinel/profile.h"

namespace sentinel {

class TestFolder {
 public:
  explicit TestFolder(const std::filesystem::path& in = std::filesystem::temp_directory_path())
      : path_(in / "sentinel-trace-XXXXXX") {
    std::string name = path_.string();
    if (mkdtemp(name.data()) == nullptr) throw Error("cannot make a folder", errno);
    path_ = name;
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  auto files() const { return std::distance(std::filesystem::directory_iterator(path_), {}); }

 private:
  std::filesystem::path path_;
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

template <class Attempt>
std::string error_of(Attempt attempt) {
  try {
    attempt();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// weight (persistent) and input feed a forward layer of two ops; a backward layer follows.
inline Profile sample_profile() {
  const auto ids = [](auto... t) { return std::vector<TensorId>{TensorId(std::size_t(t))...}; };
  Profile p;
  p.meta = {.source = "synthetic",
            .exact = true,
            .read_write = true,
            .complete = true,
            .model = "tiny",
            .command = "python3 train.py",
            .framework = "c",
            .batch = 32,
            .window_pages = 64,
            .sample_error = 0.5,
            .step_us = 30,
            .profiled_step_us = 300.25,
            .signature = 0xfedcba9876543210,
            .machine = {"host", "cpu \"x\"", "Linux 6", 2, 1u << 30, 1u << 20},
            .created = "2024-01-02T03:04:05Z"};
  p.layers = {{"fc", Phase::forward}, {"fc.grad", Phase::backward}};
  p.ops = {{"linear", LayerId(0), Phase::forward, 10.5, ids(0, 1), ids(2), "fc"},
           {"relu", LayerId(0), Phase::forward, 2, ids(2), ids(3), "fc"},
           {"relu_grad", LayerId(1), Phase::backward, 3, ids(3), ids(4), ""},
           {"sgd", LayerId(1), Phase::optimizer, 4, ids(0, 4), ids(0), "opt"}};
  const OpId op0(0), op1(1), op2(2), op3(3);
  p.tensors = {{"weight", 10000, TensorKind::global, {}, {}, 0, 4096},
               {"input", 100, TensorKind::intermediate, {}, op0, 0, {}, 1, true},
               {"fc/linear:0", 4096, TensorKind::intermediate, op0, op1},
               {"fc/relu:0", 4097, TensorKind::intermediate, op1, op2, 1},
               {"grad", 10000, TensorKind::intermediate, op2, op3},
               {"scratch", 8192, TensorKind::workspace, op3, op3, 0, {}, 2, false, {2, 5}}};
  p.accesses = {{TensorId(0), op0, 3, 0},
                {TensorId(0), op3, 0, 3},
                {TensorId(2), op0, 0, 1},
                {TensorId(5), op3, 2, 2}};
  p.natural = {{TensorId(2), 0xffff800000001000}, {TensorId(3), 0x7f0000002040}};
  return p;
}

}  // namespace sentinel
