// Trainings of sessions on a GPU's memory: the device is fake_cuda.cpp's unless a test brings one.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/units.h"
#include "runtime/session.h"
#include "unit/places.h"
#include "unit/runtime/begin_session.h"
#include "unit/runtime/gpu/gpu_training.h"
#include "unit/trace/sample_profile.h"

namespace sentinel::rig {

// A file of the test's own, which goes with the process.
inline std::filesystem::path scratch(const char* what) {
  static const TestFolder folder;
  return folder / (std::string("session") + what);
}

inline SessionOptions options_with(const std::string& fast) {
  SessionOptions options = options_from_environment();
  options.mode = Mode::run;
  options.summary = scratch(".json");
  options.output = scratch(".sentinel");
  options.counting.source = "auto";
  options.quiet = true;
  options.tiers.arena_bytes = 16_GiB;
  options.gpu.device = 0;
  options.gpu.memory = "pools";
  options.gpu.cuda = test::kFakeCuda;
  setenv("XDG_CACHE_HOME", scratch("").c_str(), 1);  // the device is measured, as a new one
  options.fast = parse_budget(fast);
  return options;
}

inline Session& begin(SessionOptions options) {
  return test::begin_session(std::move(options), OpOrder::any);
}

struct Outcome {
  std::uint64_t sum;
  nlohmann::json summary;
};

// `late`: a device of its own instead of fake_cuda.cpp's, which `options` has; work on it is done
// late.
inline Outcome train(SessionOptions options, const std::function<void(Training&)>& steps,
                     gpu::FakeGpu* late = nullptr) {
  Session& session = begin(std::move(options));
  ManagedMemory memory(session, late);
  Training training(memory);
  steps(training);
  const auto sum = training.sum();
  session.finish("over");
  if (late != nullptr) {
    late->end_files();
    late->finish();
    EXPECT_THAT(late->complaints(), testing::IsEmpty());
  }
  std::ifstream file(scratch(".json"));
  return {*sum, nlohmann::json::parse(file)};
}

inline Outcome train(const std::string& fast, const std::function<void(Training&)>& steps) {
  return train(options_with(fast), steps);
}

inline std::uint64_t plain(const std::function<void(Training&)>& steps) {
  PlainMemory memory;
  Training training(memory);
  steps(training);
  return *training.sum();
}

}  // namespace sentinel::rig
