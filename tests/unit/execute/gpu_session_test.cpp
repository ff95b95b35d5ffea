// A session on a GPU's memory, from the driver's library up. The device is fake_cuda.cpp: what an
// op touches without having been told that it may, ends the test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <tuple>

#include "execute/gpu/managed_driver.h"
#include "execute/measure.h"
#include "execute/session.h"
#include "fake_gpu.h"
#include "gpu_training.h"
#include "plan/plan_file.h"
#include "sentinel/adaptor.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "trace/store.h"
#include "unit/trace/sample_profile.h"

namespace sentinel {
namespace {

using rig::kBytes;
using rig::kEach;
using rig::kLayers;
using rig::kWords;
using rig::ManagedMemory;
using rig::PlainMemory;
using rig::Tensor;
using rig::Training;
using testing::HasSubstr;

std::filesystem::path scratch(const char* what) {
  return std::filesystem::path(testing::TempDir()) /
         ("gpu-session-" + std::to_string(getpid()) + what);
}

SessionOptions options_with(const std::string& fast) {
  SessionOptions options = options_from_environment();
  options.mode = Mode::run;
  options.summary = scratch(".json");
  options.output = scratch(".sentinel");
  options.count = "auto";
  options.quiet = true;
  options.arena_bytes = 16_GiB;
  options.gpu = 0;
  options.gpu_memory = "pools";
  options.cuda = SENTINEL_FAKE_CUDA;
  setenv("XDG_CACHE_HOME", scratch("").c_str(), 1);  // the device is measured, as a new one
  options.fast = parse_budget(fast);
  return options;
}

// Never destroyed: a session lives as long as its process.
Session& begin(SessionOptions options) {
  return *new Session(std::move(options), "test", OpOrder::any);
}

struct Outcome {
  std::uint64_t sum;
  nlohmann::json summary;
};

// `late`: a device of its own instead of fake_cuda.cpp's, which `options` has; work on it is done
// late.
Outcome train(SessionOptions options, const std::function<void(Training&)>& steps,
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

Outcome train(const std::string& fast, const std::function<void(Training&)>& steps) {
  return train(options_with(fast), steps);
}

std::uint64_t plain(const std::function<void(Training&)>& steps) {
  PlainMemory memory;
  Training training(memory);
  steps(training);
  return *training.sum();
}

class GpuSession : public testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(GpuSession, ComputesTheSameInAShareOfTheMemory) {
  const auto [policy, two_threads] = GetParam();
  const auto steps = [two = two_threads](Training& training) {
    for (std::uint64_t i = 0; i < 8; ++i) training.step(i, 1, two);
  };
  auto options = options_with("40%");
  options.policy = policy;
  const auto outcome = train(std::move(options), steps);
  EXPECT_EQ(outcome.sum, plain(steps));
  const auto& summary = outcome.summary;
  EXPECT_EQ(summary["tiers"]["fast"], "gpu0");
  EXPECT_LE(summary["peak_fast_bytes"], summary["fast_limit_bytes"]);
  EXPECT_LE(summary["fast_limit_bytes"], summary["peak_unlimited_bytes"].get<double>() * 0.4);
  const auto& last = summary["steps"].back();
  EXPECT_EQ(last["phase"], "steady");
  EXPECT_GT(last["promoted_bytes"], 0);
  EXPECT_GT(last["demoted_bytes"], 0);
  EXPECT_EQ(read_profile(scratch(".sentinel")).meta.source, "ops");
}
INSTANTIATE_TEST_SUITE_P(ByPlansInOneThreadAndInTwo, GpuSession,
                         testing::Combine(testing::Values("sentinel", "g10", "auto"),
                                          testing::Bool()));

// Without a plan: a pager learns from faults which kernels follow each other, and what they need.
class PagedGpuSession : public testing::TestWithParam<unsigned> {};

TEST_P(PagedGpuSession, ComputesTheSameAndLearnsWhatToFetch) {
  const auto steps = [](Training& training) {
    for (std::uint64_t i = 0; i < 14; ++i) training.step(i, i == 6 ? 0.5 : 1);
  };
  std::map<std::string, std::uint64_t> faults;
  for (const char* policy : {"lru", "deepum"}) {
    const auto device = std::make_shared<gpu::FakeGpu>(GetParam(), 400, 2_MiB);
    auto options = options_with(GetParam() % 2 == 0 ? "64M" : "45%");
    options.policy = policy;
    options.machine = "v100-16gb";
    options.driver = device;
    const auto [sum, summary] = train(std::move(options), steps, device.get());
    EXPECT_EQ(sum, plain(steps)) << policy;
    EXPECT_LE(summary["peak_fast_bytes"], summary["fast_limit_bytes"]);
    const auto& last = summary["steps"].back();
    EXPECT_EQ(last["phase"], "steady");
    EXPECT_GT(last["promoted_bytes"], 0);
    // How many depends on which of two threads is first: the least of the last steps.
    faults[policy] = last["demand_faults"];
    for (auto step = summary["steps"].end() - 4; step != summary["steps"].end(); ++step)
      faults[policy] = std::min<std::uint64_t>(faults[policy], (*step)["demand_faults"]);
  }
  EXPECT_LT(faults["deepum"], faults["lru"]);
}
INSTANTIATE_TEST_SUITE_P(Seeds, PagedGpuSession, testing::Range(1u, 5u));

TEST(PagedGpuSession, IsOfAGpuAlone) {
  auto options = options_with("45%");
  options.policy = "memory-mode";
  EXPECT_THROW(begin(options), Error);
  options.policy = "deepum";
  options.gpu.reset();
  options.count = "ops";
  EXPECT_THROW(begin(options), Error);
}

// A device of 40 %, a host that holds a little, and a file: one plan over three tiers. The device
// reads and writes the file itself, or not.
class GpuSessionOverAFile : public testing::TestWithParam<const char*> {};

TEST_P(GpuSessionOverAFile, ComputesTheSame) {
  const auto steps = [](Training& training) {
    for (std::uint64_t i = 0; i < 8; ++i) training.step(i, i == 6 ? 0.5 : 1);
  };
  const auto machine = scratch("-three.toml");
  std::ofstream(machine) << R"(name = "three"
source = "a test's"
granule = "2MiB"
[[tier]]
name = "hbm"
capacity = "1GiB"
read_bw = "100GB/s"
write_bw = "100GB/s"
byte_addressable = true
[[tier]]
name = "host"
capacity = "48MiB"
read_bw = "10GB/s"
write_bw = "10GB/s"
[[tier]]
name = "ssd"
read_bw = "2GB/s"
write_bw = "2GB/s"
)";
  for (const unsigned seed : {0u, 1u, 2u, 3u}) {
    auto options = options_with("40%");
    options.policy = seed == 3 ? "g10" : "sentinel";
    options.host_bytes = 48_MiB;
    options.slow_directory = testing::TempDir();
    options.allow_tmpfs = true;
    options.machine = machine;
    options.io = GetParam();
    options.cufile = SENTINEL_FAKE_CUDA;
    const auto device = seed == 0 ? nullptr : std::make_shared<gpu::FakeGpu>(seed, 400, 2_MiB);
    options.driver = device;
    const auto [sum, summary] = train(std::move(options), steps, device.get());
    EXPECT_EQ(sum, plain(steps)) << "seed " << seed;
    EXPECT_EQ(summary["tiers"]["below"], testing::TempDir());
    const auto& last = summary["steps"].back();
    EXPECT_GT(last["promoted_bytes"], 0);
    EXPECT_GT(last["writing"]["bytes"], 0);
    EXPECT_GT(last["reading"]["bytes"], 0);
    const bool direct = device && device->filled_from_files() > 0;
    EXPECT_EQ(direct, device && GetParam() == std::string(kCuFile));
  }
}

INSTANTIATE_TEST_SUITE_P(ByEveryWay, GpuSessionOverAFile, testing::Values("auto", kCuFile));

// Kernels and copies run when the device pleases, in every order that streams and events allow.
class LateGpuSession : public testing::TestWithParam<unsigned> {};

SessionOptions on_late_device(std::shared_ptr<gpu::FakeGpu> device) {
  auto options = options_with("45%");
  options.machine = "v100-16gb";  // this one would take its time to be measured
  options.driver = std::move(device);
  return options;
}

TEST_P(LateGpuSession, ComputesTheSameInAnyOrderOfTheDevice) {
  const auto seed = GetParam();
  const auto steps = [&](Training& training) {
    for (std::uint64_t i = 0; i < 9; ++i) training.step(i, i == 7 ? 0.5 : 1, seed % 2 == 1);
  };
  const auto device = std::make_shared<gpu::FakeGpu>(seed, 400, 2_MiB);
  auto options = options_with(seed % 3 == 0 ? "64M" : "45%");
  options.machine = "v100-16gb";  // this one would take its time to be measured
  options.driver = device;
  EXPECT_EQ(train(std::move(options), steps, device.get()).sum, plain(steps));
}
INSTANTIATE_TEST_SUITE_P(Seeds, LateGpuSession, testing::Range(1u, 9u));

TEST_P(LateGpuSession, StreamsMayBeDestroyed) {
  const auto device = std::make_shared<gpu::FakeGpu>(GetParam(), 400, 2_MiB);
  Session& session = begin(on_late_device(device));
  ManagedMemory memory(session, device.get());
  Training training(memory);
  for (std::uint64_t i = 0; i < 8; ++i) {
    training.step(i, 1, GetParam() % 2 == 1);
    memory.change_stream();
  }
  const auto sum = training.sum();
  session.finish("over");
  device->finish();
  EXPECT_THAT(device->complaints(), testing::IsEmpty());
  EXPECT_EQ(device->waits(nullptr), 0u) << "nobody computes on the default stream";
  EXPECT_EQ(*sum, plain([](Training& other) {
    for (std::uint64_t i = 0; i < 8; ++i) other.step(i);
  }));
}

TEST_P(LateGpuSession, ComputesTheSameInManagedMemory) {
  const auto steps = [](Training& training) {
    for (std::uint64_t i = 0; i < 7; ++i) training.step(i);
  };
  auto below = std::make_unique<gpu::FakeGpu>(GetParam(), 400, 2_MiB);
  auto& device = *below;
  auto options = options_with("45%");
  options.machine = "v100-16gb";
  options.gpu_memory = "managed";
  options.driver = gpu::make_managed_driver(std::move(below));
  EXPECT_EQ(train(std::move(options), steps, &device).sum, plain(steps));
  EXPECT_GT(device.prefetched_in(), 0u);
  EXPECT_GT(device.prefetched_out(), 0u);
}

TEST(GpuSessionTest, HoldsABudgetInBytesFromTheFirstTensorOn) {
  const auto steps = [](Training& training) {
    for (std::uint64_t i = 0; i < 8; ++i) training.step(i);
  };
  const auto outcome = train("64M", steps);
  EXPECT_EQ(outcome.sum, plain(steps));
  EXPECT_LE(outcome.summary["peak_fast_bytes"], 64u << 20);
}

TEST(GpuSessionTest, StepsOfOtherKindsComputeTheSame) {
  const auto steps = [](Training& training) {
    for (std::uint64_t i = 0; i < 14; ++i) training.step(i, i % 3 == 2 ? 0.5 : i == 9 ? 0.3 : 1);
  };
  EXPECT_EQ(train("45%", steps).sum, plain(steps));
}

TEST(GpuSessionTest, ADeviceThatIsFullIsABudget) {
  const auto on_a_small_device = [] {
    setenv("SENTINEL_FAKE_CUDA_BYTES", std::to_string(128u << 20).c_str(), 1);
    const auto steps = [](Training& training) {
      for (std::uint64_t i = 0; i < 4; ++i) training.step(i);
    };
    std::_Exit(train("90%", steps).sum == plain(steps) ? 0 : 1);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(on_a_small_device(), testing::ExitedWithCode(0), "");
}

// Whatever the budget; without one, too.
TEST(GpuSessionTest, LeavesSomeOfTheDeviceToTheProgramsLibraries) {
  const auto steps = [](Training& training) {
    for (std::uint64_t i = 0; i < 8; ++i) training.step(i);
  };
  for (const char* fast : {"100%", ""}) {
    const auto device = std::make_shared<gpu::FakeGpu>(1, 80, 2_MiB);
    auto options = options_with("100%");
    if (fast[0] == 0) options.fast = {};
    options.machine = "v100-16gb";
    options.driver = device;
    const auto [sum, summary] = train(std::move(options), steps, device.get());
    EXPECT_EQ(sum, plain(steps));
    EXPECT_GT(summary["steps"].back()["demoted_bytes"], 0);
    EXPECT_EQ(device->most_chunks(), 70u) << "an eighth is left";
    EXPECT_EQ(summary["fast_limit_bytes"], fast[0] == 0 ? 0 : 140_MiB) << "and not planned with";
  }
  auto options = options_with("64M");
  options.machine = "v100-16gb";
  options.gpu_memory = "managed";
  options.fast = {};
  options.driver = gpu::make_managed_driver(std::make_unique<gpu::FakeGpu>(1, 80, 2_MiB));
  Session& session = begin(std::move(options));
  EXPECT_EQ(session.allocate(142_MiB), nullptr);
  EXPECT_NE(session.allocate(140_MiB), nullptr);
}

// cuBLAS's workspace, for one; and an op whose parts run as ops: what it frees between them is
// another's by then.
TEST(GpuSessionTest, WhatNoOpNamesStaysAndPartsOfAnOpNameWhatTheyUse) {
  Session& session = begin(options_with("80M"));
  ManagedMemory memory(session);
  const Tensor workspace = memory.allocate(kWords);
  Training training(memory);
  const auto with_parts = [&](std::uint64_t number) {
    memory.op("whole", Phase::forward, {}, [&] {
      std::deque<Tensor> kept;
      for (std::uint64_t part = 0; part < 12; ++part) {
        const Tensor made = memory.allocate(kWords);
        session.op_tensor(made, kBytes, SENTINEL_READ);
        session.op_run();
        for (std::size_t i = 0; i < kWords; i += kEach) workspace[i] = made[i] = number + part;
        memory.release(made);
        kept.push_back(memory.allocate(2 * kWords / 3));  // takes of what that leaves
        if (kept.size() > 3) {
          memory.release(kept.front());
          kept.pop_front();
        }
      }
      for (Tensor tensor : kept) memory.release(tensor);
    });
  };
  for (std::uint64_t i = 0; i < 7; ++i) {
    with_parts(i);
    training.step(i);
    for (std::size_t w = 0; w < kWords; w += kEach) ASSERT_EQ(workspace[w], i + 11);
  }
  EXPECT_EQ(*training.sum(), plain([](Training& same) {
    for (std::uint64_t i = 0; i < 7; ++i) same.step(i);
  }));
}

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
    options.host_bytes = 256_MiB;
    options.slow_directory = testing::TempDir();
    options.allow_tmpfs = true;
    options.io = io;
    options.cufile = SENTINEL_FAKE_CUDA;
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

// As autograd does, whose thread for the device launches while the calling one computes on the
// processor.
TEST(GpuSessionTest, AnOpOnTheProcessorLeavesWhatAnotherUsesAlone) {
  Session& session = begin(options_with("64M"));
  ManagedMemory memory(session);
  const Tensor used = memory.allocate(kWords);
  memory.op("on the device", Phase::backward, {used}, [&] {
    std::thread([&] {
      session.op_start("on the processor", Phase::backward, "beside");
      session.op_run();
      session.op_end();
    }).join();
    const Tensor rest = memory.allocate((64_MiB - kBytes) / sizeof(std::uint64_t));
    ASSERT_NE(rest, nullptr);
    EXPECT_EQ(memory.allocate(1), nullptr);
    used[0] = rest[0] = 1;
  });
}

// As in autograd's thread for another device, which copies to the one that is managed while that
// one's thread is about to launch.
TEST(GpuSessionTest, AnOpInAnotherThreadLeavesWhatIsAboutToBeLaunchedAlone) {
  Session& session = begin(options_with("64M"));
  ManagedMemory memory(session);
  const Tensor used = memory.allocate(kWords), other = memory.allocate(kWords);
  memory.op("launches", Phase::backward, {used}, [&] {
    std::thread([&] {
      memory.op("copies between devices", Phase::backward, {other}, [] {});
    }).join();
    EXPECT_NE(memory.allocate((64_MiB - 2 * kBytes) / sizeof(std::uint64_t)), nullptr);
    ASSERT_EQ(memory.allocate(1), nullptr);
    used[0] = 1;
  });
  memory.op("next", Phase::backward, {}, [&] {
    EXPECT_NE(memory.allocate(2 * kWords), nullptr) << "what neither uses any more leaves";
  });
}

// As two of autograd's threads may use what forward has left: where the plan sends it away at the
// end of one's op, the other's has yet to be launched.
TEST_P(LateGpuSession, APlanSendsNothingAwayThatAnotherThreadIsAboutToLaunch) {
  const auto device = std::make_shared<gpu::FakeGpu>(GetParam(), 400, 2_MiB);
  Session& session = begin(on_late_device(device));
  ManagedMemory memory(session, device.get());
  rig::SecondThread second;
  for (int step = 0; step < 8; ++step) {
    std::vector<Tensor> kept;
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      const auto number = std::to_string(layer);
      memory.op("make " + number, Phase::forward, {}, [&] {
        kept.push_back(memory.allocate(kWords));
        memory.launch({kept.back()}, [] {});
      });
      const Tensor made = kept.back();
      memory.op("launches late " + number, Phase::forward, {made}, [&] {
        second.run([&] {
          memory.op("ends first " + number, Phase::forward, {made},
                    [&] { memory.launch({made}, [] {}); });
        });
        usleep(2000);  // long enough to leave
        memory.launch({made}, [] {});
      });
    }
    for (std::size_t layer = kLayers; layer-- > 0;) {
      memory.op("backward " + std::to_string(layer), Phase::backward, {kept[layer]},
                [&] { memory.launch({kept[layer]}, [] {}); });
      memory.release(kept[layer]);
    }
    memory.step_end();
  }
  session.finish("over");
  device->finish();
  EXPECT_THAT(device->complaints(), testing::IsEmpty());
  std::ifstream file(scratch(".json"));
  EXPECT_GT(nlohmann::json::parse(file)["steps"].back()["demoted_bytes"], 0);
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
      options.host_bytes = 32_MiB;
      options.slow_directory = testing::TempDir();
      options.allow_tmpfs = true;
      options.io = kCuFile;
      options.cufile = SENTINEL_FAKE_CUDA;
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
  options.cuda = "libno-such-driver.so.1";
  EXPECT_THROW(begin(options), Error);
  options = options_with("40%");
  options.gpu = 3;
  EXPECT_THROW(begin(options), Error);
  options = options_with("40%");
  options.count = "userfaultfd";
  EXPECT_THROW(begin(options), Error);
  options = options_with("40%");
  options.host_bytes = 32_MiB;
  options.slow_directory = testing::TempDir();
  options.allow_tmpfs = true;
  options.io = kCuFile;
  options.cufile = "libno-such-storage.so.0";
  EXPECT_THROW(begin(options), Error);
}

TEST(GpuTier, IsWrittenWithTheHostBelow) {
  EXPECT_EQ(parse_gpu_tier("fast=gpu0,slow=host"), 0);
  EXPECT_EQ(parse_gpu_tier("fast=gpu12"), 12);
  EXPECT_EQ(parse_gpu_tier("fast=node0,slow=node1"), std::nullopt);
  EXPECT_EQ(parse_gpu_tier("slow=gpu-disk"), std::nullopt);
  for (const char* wrong :
       {"fast=gpu", "fast=gpu0,slow=node1", "slow=host,fast=gpu0,x", "fast=gpu-1", "fast=gpu0x"})
    EXPECT_THROW(parse_gpu_tier(wrong), Error) << wrong;
}

class MeasureGpu : public testing::TestWithParam<const char*> {};

TEST_P(MeasureGpu, TellsBandwidthsAndGivesAllBack) {
  auto options = options_with("1G");
  options.gpu_memory = GetParam();
  const auto driver = open_gpu(options);
  const auto before = driver->free_bytes();
  const auto machine = measure_gpu(*driver, "local-gpu0");
  EXPECT_EQ(driver->free_bytes(), before);
  ASSERT_EQ(machine.tiers.size(), 2u);
  EXPECT_EQ(machine.tiers[0].name, "hbm");
  EXPECT_EQ(machine.tiers[0].capacity, before);
  for (const auto& tier : machine.tiers) EXPECT_GT(tier.read_bw, 1e8) << tier.name;
  EXPECT_GE(machine.links[0].bw, std::max(machine.tiers[1].read_bw, machine.tiers[1].write_bw));
}
INSTANTIATE_TEST_SUITE_P(InBothWays, MeasureGpu, testing::Values("pools", "managed"));

// Calls that take long, as a device's do beside a fast link.
class SlowToMap final : public gpu::FakeGpu {
 public:
  using FakeGpu::FakeGpu;
  void map(std::uintptr_t address, std::uint64_t bytes, gpu::Chunk chunk) override {
    usleep(4000);
    FakeGpu::map(address, bytes, chunk);
  }
  void unmap(std::uintptr_t address, std::uint64_t bytes) override {
    usleep(static_cast<useconds_t>(2000 * bytes / 2_MiB));
    FakeGpu::unmap(address, bytes);
  }
};

TEST(MeasureGpu, MemoryMovesNoFasterThanItIsMapped) {
  SlowToMap device(1, 64, 2_MiB);
  const auto pools = measure_gpu(device, "pools");
  EXPECT_LE(pools.tiers[1].read_bw, 2_MiB / 4e-3);
  EXPECT_LE(pools.tiers[1].write_bw, 2_MiB / 2e-3);
  EXPECT_LE(pools.links[0].bw, 2 * 2_MiB / 4e-3);
  const auto driver = gpu::make_managed_driver(std::make_unique<SlowToMap>(1, 64, 2_MiB));
  EXPECT_GT(measure_gpu(*driver, "managed").links[0].bw, 2 * pools.links[0].bw)
      << "what decides between the two";
}

// None is known to be so; its granules are what the device has them made of.
TEST(MeasureGpu, ADeviceMayBeOfLargerGranules) {
  const auto device = std::make_shared<gpu::FakeGpu>(1, 200, 4_MiB);
  EXPECT_EQ(measure_gpu(*device, "pools").granule_bytes, 4_MiB);
  EXPECT_THAT(device->complaints(), testing::IsEmpty());
  const auto steps = [](Training& training) {
    for (std::uint64_t i = 0; i < 8; ++i) training.step(i);
  };
  auto options = options_with("50%");
  options.machine = "v100-16gb";
  options.driver = device;
  const auto [sum, summary] = train(std::move(options), steps, device.get());
  EXPECT_EQ(sum, plain(steps));
  EXPECT_GT(summary["steps"].back()["promoted_bytes"], 0);
}

TEST(CudaDriver, UnmapsNeighboursTogetherButNoPartOfAny) {
  const auto driver = gpu::open_driver(0, SENTINEL_FAKE_CUDA);
  const auto range = driver->reserve(16_MiB);
  const std::vector chunks{*driver->create(4_MiB), *driver->create(4_MiB), *driver->create(4_MiB)};
  driver->map_all(range, 4_MiB, chunks);
  for (const auto& [offset, bytes] :
       {std::pair{0_MiB, 6_MiB}, {2_MiB, 6_MiB}, {0_MiB, 14_MiB}, {12_MiB, 4_MiB}})
    EXPECT_THROW(driver->unmap(range + offset, bytes), gpu::DriverError) << offset;
  driver->unmap(range + 4_MiB, 4_MiB);
  EXPECT_THROW(driver->unmap(range, 12_MiB), gpu::DriverError) << "with a gap";
  driver->map(range + 4_MiB, 4_MiB, chunks[1]);
  *reinterpret_cast<char*>(range + 4_MiB) = 1;
  driver->unmap(range, 12_MiB);
  driver->map_all(range, 4_MiB, chunks);
  driver->unmap(range, 12_MiB);
  for (const auto chunk : chunks) driver->destroy(chunk);
  driver->unreserve(range, 16_MiB);
}

TEST(CudaDriver, UnmapsOneByOneWhereNeighboursAreRefused) {
  const auto trains = [] {
    setenv("SENTINEL_FAKE_CUDA_UNMAPS_ONE", "1", 1);
    testing::internal::CaptureStderr();
    const auto steps = [](Training& training) {
      for (std::uint64_t i = 0; i < 8; ++i) training.step(i);
    };
    const bool same = train("40%", steps).sum == plain(steps);
    const auto told = testing::internal::GetCapturedStderr();
    const auto first = told.find("unmapped one by one");
    const bool once = first != told.npos && told.find("unmapped one by one", first + 1) == told.npos;
    std::fprintf(stderr, "%s", told.c_str());
    std::_Exit(same && once ? 0 : 1);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(trains(), testing::ExitedWithCode(0), "");
}

// As of CUDA 12.2 a place is a location, before that a device. The fakes refuse any other.
TEST(CudaDriver, PlacesManagedMemoryByTheCallsThatItHas) {
  for (const char* library : {SENTINEL_FAKE_CUDA, SENTINEL_FAKE_CUDA_11}) {
    const auto driver = gpu::open_driver(0, library);
    const auto address = driver->manage(4_MiB);
    driver->prefer_device(address, 2_MiB);
    driver->prefer_host(address + 2_MiB, 2_MiB);
    for (const bool to_device : {true, false}) driver->prefetch(address, 4_MiB, to_device, nullptr);
    driver->unmanage(address);
  }
}

TEST(CudaDriver, WithoutThoseCallsHasPools) {
  auto options = options_with("40%");
  options.cuda = SENTINEL_FAKE_CUDA_POOLS;
  const auto steps = [](Training& training) {
    for (std::uint64_t i = 0; i < 6; ++i) training.step(i);
  };
  EXPECT_EQ(train(options, steps).sum, plain(steps));
  options.gpu_memory = "managed";
  EXPECT_THROW(begin(options), Error);
  EXPECT_THROW(gpu::open_driver(0, options.cuda)->prefer_host(0, 1), Error);
}

TEST(ManagedDriver, AsksForNoMoreThanTheDeviceHasFree) {
  auto driver = gpu::make_managed_driver(std::make_unique<gpu::FakeGpu>(1, 100, 2_MiB));
  const auto first = driver->reserve(150_MiB);
  EXPECT_THROW(driver->reserve(100_MiB), Error);
  driver->unreserve(first, 150_MiB);
  const auto second = driver->reserve(100_MiB);
  driver->unreserve(second, 100_MiB);
}

TEST(GpuMemory, IsOfPoolsOrManagedOrChosen) {
  EXPECT_EQ(options_from_environment().gpu_memory, "auto");
  setenv("SENTINEL_GPU_MEMORY", "both", 1);
  EXPECT_THROW(options_from_environment(), Error);
  unsetenv("SENTINEL_GPU_MEMORY");
}

// The fake device has 16 GiB.
TEST(GpuMemory, IsManagedWhereThatIsFasterAndHoldsAllOfWhatIsStored) {
  auto options = options_with("40%");
  options.gpu_memory = "auto";
  const auto chosen = [&](double pools, double managed) {
    const auto known = [&](const SessionOptions& way) {
      if (managed < 0 && way.gpu_memory == "managed") throw Error("no managed memory");
      Machine machine;
      machine.links.push_back({.bw = way.gpu_memory == "managed" ? managed : pools});
      return machine;
    };
    return with_gpu_memory(options, known).gpu_memory;
  };
  EXPECT_EQ(chosen(1e9, 2e9), "pools");  // nothing tells how much it has to hold
  options.profile = scratch("-small.sentinel");
  auto profile = sample_profile();
  write_profile(options.profile, profile);
  EXPECT_EQ(chosen(1e9, 2e9), "managed");
  EXPECT_EQ(chosen(1e9, 1.01e9), "pools");
  EXPECT_EQ(chosen(1e9, -1), "pools");
  EXPECT_EQ(chosen(0, 1e9), "pools");  // a machine file without a link
  options.host_bytes = 1_GiB;
  EXPECT_EQ(chosen(1e9, 2e9), "pools");
  options.host_bytes = 0;
  options.profile = scratch("-large.sentinel");
  for (auto& tensor : profile.tensors) tensor.bytes <<= 18;
  write_profile(options.profile, profile);
  ASSERT_GT(3 * peak_live_bytes(profile), 16_GiB);
  EXPECT_EQ(chosen(1e9, 2e9), "pools");
  options.profile.clear();
  options.plan = scratch(".plan");
  for (const auto* way : {"managed", "pools"}) {
    plan::write_plan(options.plan, {.machine = std::string("local-gpu0-") + way});
    EXPECT_EQ(chosen(1e9, 1e9), way);
  }
  options.gpu_memory = "managed";
  EXPECT_EQ(chosen(2e9, 1e9), "managed");
}

TEST(GpuMemory, IsChosenOnTheDeviceItself) {
  auto options = options_with("40%");
  options.gpu_memory = "auto";
  const auto steps = [](Training& training) {
    for (std::uint64_t i = 0; i < 6; ++i) training.step(i);
  };
  EXPECT_EQ(train(options, steps).sum, plain(steps));
  const auto stored = scratch("-stored.sentinel");
  std::filesystem::copy_file(options.output, stored);
  options.profile = stored;
  std::vector<std::string> measured;
  const auto settled = with_gpu_memory(options, [&](const SessionOptions& way) {
    measured.push_back(way.gpu_memory);
    return known_machine(way);
  });
  EXPECT_THAT(measured, testing::UnorderedElementsAre("pools", "managed"));
  EXPECT_THAT(settled.gpu_memory, testing::AnyOf("pools", "managed"));
}

TEST(HostMemory, IsBesideAGpusPools) {
  EXPECT_EQ(options_from_environment().host_bytes, 0u);
  setenv("SENTINEL_HOST_MEMORY", "65M", 1);
  EXPECT_THROW(options_from_environment(), Error);
  setenv("SENTINEL_TIERS", "fast=gpu0,slow=host", 1);
  EXPECT_EQ(options_from_environment().host_bytes, 64_MiB);
  for (const char* too_little : {"0", "31M", "-1", "much"}) {
    setenv("SENTINEL_HOST_MEMORY", too_little, 1);
    EXPECT_THROW(options_from_environment(), Error) << too_little;
  }
  setenv("SENTINEL_HOST_MEMORY", "64M", 1);
  setenv("SENTINEL_IO", kCuFile, 1);
  EXPECT_EQ(options_from_environment().io, kCuFile);
  unsetenv("SENTINEL_HOST_MEMORY");
  EXPECT_EQ(options_from_environment().io, "auto");
  setenv("SENTINEL_MODE", "run", 1);
  EXPECT_THROW(options_from_environment(), Error);
  unsetenv("SENTINEL_MODE");
  unsetenv("SENTINEL_IO");
  setenv("SENTINEL_HOST_MEMORY", "64M", 1);
  setenv("SENTINEL_GPU_MEMORY", "managed", 1);
  EXPECT_THROW(options_from_environment(), Error);
  for (const char* name : {"SENTINEL_HOST_MEMORY", "SENTINEL_TIERS", "SENTINEL_GPU_MEMORY"})
    unsetenv(name);
}

}  // namespace
}  // namespace sentinel
