// A session on a GPU's memory where something ends or is refused: forks, calls that fail, memory
// that is not there. The device is fake_cuda.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "engine/gpu/managed_driver.h"
#include "runtime/session.h"
#include "sentinel/adaptor.h"
#include "sentinel/error.h"
#include "unit/engine/gpu/fake_gpu.h"
#include "unit/places.h"
#include "unit/runtime/gpu/gpu_session_rig.h"

namespace sentinel {
namespace {

using rig::begin;
using rig::kBytes;
using rig::kEach;
using rig::kLayers;
using rig::kWords;
using rig::ManagedMemory;
using rig::options_with;
using rig::plain;
using rig::Tensor;
using rig::train;
using rig::Training;
using testing::HasSubstr;

TEST(GpuSessionTest, AChildHasNoGpu) {
  Session& session = begin(options_with("64M"));
  ManagedMemory memory(session);
  Training training(memory);
  training.step(0);
  session.before_fork();
  const pid_t child = fork();
  if (child == 0) {
    session.after_fork_in_child();
    const bool refused = session.allocate(kBytes) == nullptr;
    const bool said = session.why_full(kBytes).find("forked child") != std::string::npos;
    _exit(refused && said ? 0 : 1);
  }
  session.after_fork_in_parent();
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  training.step(1);
  EXPECT_EQ(*training.sum(), plain([](Training& same) { same.step(0), same.step(1); }));
}

// Once: a loader forks several workers.
TEST(GpuSessionTest, AForkWhileTheDeviceHasTheFileIsToldWithTheRemedy) {
  for (const char* io : {"auto", kCuFile}) {
    auto options = options_with("64M");
    options.gpu.host_bytes = 256_MiB;
    options.tiers.slow_directory = testing::TempDir();
    options.tiers.allow_tmpfs = true;
    options.moves.io = io;
    options.gpu.cufile = test::kFakeCuda;
    options.quiet = false;
    Session& session = begin(std::move(options));
    testing::internal::CaptureStderr();
    for (int worker = 0; worker < 2; ++worker) {
      session.before_fork();
      session.after_fork_in_parent();
    }
    const auto told = testing::internal::GetCapturedStderr();
    const auto first = told.find("multiprocessing_context=\"spawn\"");
    EXPECT_EQ(first != told.npos, io == std::string(kCuFile));
    EXPECT_EQ(told.find("multiprocessing_context", first + 1), told.npos);
  }
}

TEST(GpuSessionTest, TellsWhatIsAliveAndWhatIsHeld) {
  Session& session = begin(options_with("64M"));
  ManagedMemory memory(session);
  const Tensor first = memory.allocate(kWords), second = memory.allocate(kWords);
  memory.release(second);
  auto told = session.memory(true);
  EXPECT_EQ(told.live_bytes, kBytes);
  EXPECT_EQ(told.most_live_bytes, 2 * kBytes);
  EXPECT_GE(told.held_bytes, kBytes);
  EXPECT_EQ(told.budget_bytes, 64u << 20);
  EXPECT_EQ(session.memory().most_live_bytes, kBytes);
  memory.release(first);
}

TEST(GpuSessionTest, WhatIsNotSupportedGoesOnWithAllOfItsMemory) {
  Session& session = begin(options_with("64M"));
  ManagedMemory memory(session);
  Training training(memory);
  for (std::uint64_t i = 0; i < 5; ++i) training.step(i);
  session.unsupported("compiling");
  EXPECT_EQ(*training.sum(), plain([](Training& same) {
    for (std::uint64_t i = 0; i < 5; ++i) same.step(i);
  }));
  const auto held = session.memory().held_bytes;
  for (std::uint64_t i = 5; i < 8; ++i) training.step(i);
  EXPECT_GE(held, kLayers * kBytes);  // beyond the budget that was
}

TEST(GpuSessionTest, WhatDoesNotFitIsRefusedAndTrainingGoesOn) {
  Session& session = begin(options_with("64M"));
  ManagedMemory memory(session);
  Training training(memory);
  training.step(0);
  memory.op("large", Phase::forward, {}, [&] {
    Tensor first = memory.allocate(4 * kWords);
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(memory.allocate(100 * kWords), nullptr);
    EXPECT_THAT(session.why_full(600), HasSubstr("budget of 64.0 MiB"));
    EXPECT_EQ(memory.allocate(16_GiB / sizeof(std::uint64_t)), nullptr);
    EXPECT_THAT(session.why_full(16_GiB), HasSubstr("SENTINEL_ARENA"));
    for (std::size_t i = 0; i < 4 * kWords; i += kEach) first[i] = i;
    memory.release(first);
  });
  training.step(1);
  EXPECT_EQ(*training.sum(), plain([](Training& same) { same.step(0), same.step(1); }));
}

TEST(GpuSessionTest, AnOpThatHasNoRoomStopsTraining) {
  const auto short_of_memory = [] {
    Session& session = begin(options_with("35%"));
    ManagedMemory memory(session);
    Training training(memory);
    for (std::uint64_t i = 0; i < 6; ++i) training.step(i, 1, false, true);
    std::_Exit(0);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(short_of_memory(),
               "an op uses more than the [0-9.]+ MiB of the device's memory that it may");
}

TEST(GpuSessionTest, ACallThatFailsEndsTrainingWithItsName) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // The first two hundred copies measure the machine, and the first hundred mappings.
  for (const std::string call :
       {"cuMemMap:140", "cuMemUnmap:140", "cuMemcpyAsync:200", "cuMemCreate:40"}) {
    const auto failing = [&] {
      setenv("SENTINEL_FAKE_CUDA_FAIL", call.c_str(), 1);
      train("40%", [](Training& training) {
        for (std::uint64_t i = 0; i < 8; ++i) training.step(i);
      });
      std::_Exit(0);
    };
    EXPECT_DEATH(failing(), call.substr(0, call.find(':')) + ": CUDA_ERROR_ILLEGAL_ADDRESS");
  }
}

TEST(GpuSessionTest, AFileOfTheDevicesThatFailsEndsTrainingWithTheCallsName) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const std::string call : {"cuFileHandleRegister:1", "cuFileWrite:1", "cuFileRead:1",
                                 "cuFileWrite:4", "cuFileRead:3"}) {
    const auto failing = [&] {
      setenv("SENTINEL_FAKE_CUDA_FAIL", call.c_str(), 1);
      auto options = options_with("40%");
      options.gpu.host_bytes = 32_MiB;
      options.tiers.slow_directory = testing::TempDir();
      options.tiers.allow_tmpfs = true;
      options.moves.io = kCuFile;
      options.gpu.cufile = test::kFakeCuda;
      try {
        train(std::move(options), [](Training& training) {
          for (std::uint64_t i = 0; i < 8; ++i) training.step(i);
        });
      } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        std::_Exit(125);
      }
      std::_Exit(0);
    };
    const bool own = call.starts_with("cuFileRead");  // not errno's
    EXPECT_EXIT(failing(), testing::ExitedWithCode(125),
                call.substr(0, call.find(':')) + (own ? ": .*cuFile's error 5008" : ": "));
  }
}

TEST(GpuSessionTest, WhatCannotBeMetIsSaid) {
  auto options = options_with("40%");
  options.gpu.cuda = "libno-such-driver.so.1";
  EXPECT_THROW(begin(options), Error);
  options = options_with("40%");
  options.gpu.device = 3;
  EXPECT_THROW(begin(options), Error);
  options = options_with("40%");
  options.counting.source = "userfaultfd";
  EXPECT_THROW(begin(options), Error);
  options = options_with("40%");
  options.gpu.host_bytes = 32_MiB;
  options.tiers.slow_directory = testing::TempDir();
  options.tiers.allow_tmpfs = true;
  options.moves.io = kCuFile;
  options.gpu.cufile = "libno-such-storage.so.0";
  EXPECT_THROW(begin(options), Error);
}

}  // namespace
}  // namespace sentinel
