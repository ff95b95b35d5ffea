// A session on a GPU's memory, from the driver's library up. The device is fake_cuda.cpp: what an
// op touches without having been told that it may, ends the test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <tuple>

#include "engine/gpu/managed_driver.h"
#include "runtime/session.h"
#include "sentinel/adaptor.h"
#include "sentinel/error.h"
#include "trace/store.h"
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
using rig::scratch;
using rig::Tensor;
using rig::train;
using rig::Training;

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
    options.gpu.driver = device;
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
  options.gpu.device.reset();
  options.counting.source = "ops";
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
    options.gpu.host_bytes = 48_MiB;
    options.tiers.slow_directory = testing::TempDir();
    options.tiers.allow_tmpfs = true;
    options.machine = machine;
    options.moves.io = GetParam();
    options.gpu.cufile = test::kFakeCuda;
    const auto device = seed == 0 ? nullptr : std::make_shared<gpu::FakeGpu>(seed, 400, 2_MiB);
    options.gpu.driver = device;
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
    options.gpu.driver = device;
    const auto [sum, summary] = train(std::move(options), steps, device.get());
    EXPECT_EQ(sum, plain(steps));
    EXPECT_GT(summary["steps"].back()["demoted_bytes"], 0);
    EXPECT_EQ(device->most_chunks(), 70u) << "an eighth is left";
    EXPECT_EQ(summary["fast_limit_bytes"], fast[0] == 0 ? 0 : 140_MiB) << "and not planned with";
  }
  auto options = options_with("64M");
  options.machine = "v100-16gb";
  options.gpu.memory = "managed";
  options.fast = {};
  options.gpu.driver = gpu::make_managed_driver(std::make_unique<gpu::FakeGpu>(1, 80, 2_MiB));
  Session& session = begin(std::move(options));
  EXPECT_EQ(session.allocate(142_MiB), nullptr);
  EXPECT_NE(session.allocate(140_MiB), nullptr);
}

// As CUDA's own allocator does, whatever the sizes: in steps without a plan and by one.
TEST(GpuSessionTest, HandsOutAddressesThatAreMultiplesOf512) {
  const auto options = options_with("40%");
  Session& session = begin(options);
  ManagedMemory memory(session);
  std::uint64_t odd = 0;
  const auto take = [&](std::size_t words) {
    const Tensor made = memory.allocate(words);
    odd += reinterpret_cast<std::uintptr_t>(made) % 512 != 0 ? 1 : 0;
    return made;
  };
  for (std::uint64_t step = 0; step < 8; ++step) {
    std::vector<Tensor> kept;
    for (std::size_t layer = 0; layer < kLayers; ++layer)
      memory.op("forward " + std::to_string(layer), Phase::forward, {}, [&] {
        for (const std::size_t words : {kWords + 1, std::size_t{3}, 9 * layer + 70}) {
          kept.push_back(take(words));
          session.op_tensor(kept.back(), 8 * words, SENTINEL_WRITE);
        }
        memory.release(take(11 * layer + 1));
      });
    for (std::size_t layer = kLayers; layer-- > 0;) {
      const std::vector<Tensor> used(kept.end() - 3, kept.end());
      kept.resize(kept.size() - 3);
      memory.op("backward " + std::to_string(layer), Phase::backward, used, [] {});
      for (Tensor tensor : used) memory.release(tensor);
    }
    memory.step_end();
  }
  session.finish("over");
  EXPECT_EQ(odd, 0u);
  for (const auto& tensor : read_profile(options.output).tensors)
    EXPECT_EQ(tensor.bytes % 512, 0u) << "a plan lays them side by side";
  std::ifstream file(scratch(".json"));
  const auto summary = nlohmann::json::parse(file);
  EXPECT_EQ(summary["steps"].back()["phase"], "steady");
  EXPECT_GT(summary["steps"].back()["promoted_bytes"], 0);
}

// As PyTorch's record_stream() has it: what a library's kernels read there on a stream that no op
// names, nobody writes over before they have run.
TEST(GpuSessionTest, AStreamThatIsNamedIsWaitedForBeforeItsMemoryIsAnothers) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    const auto device = std::make_shared<gpu::FakeGpu>(seed, 400, 2_MiB);
    auto options = options_with("64M");
    options.machine = "v100-16gb";
    options.gpu.driver = device;
    Session& session = begin(std::move(options));
    const auto main = device->make_stream(), side = device->make_stream();
    std::uint64_t read = 0;
    const auto filled = [&](std::uint64_t value) {
      session.op_start("fill", Phase::forward, nullptr);
      session.compute_on(main);
      auto* tensor = static_cast<Tensor>(session.allocate(2_MiB));
      session.op_tensor(tensor, 2_MiB, SENTINEL_WRITE);
      session.op_run();
      device->launch(main, {{reinterpret_cast<std::uintptr_t>(tensor), 2_MiB}},
                     [=] { tensor[0] = value; });
      session.op_end();
      return tensor;
    };
    const Tensor first = filled(7);
    const auto made = device->make_event();
    device->record(made, main);
    device->wait(side, made);
    device->launch(side, {{reinterpret_cast<std::uintptr_t>(first), 2_MiB}},
                   [&read, first] { read = first[0]; });
    session.used_on(first, side);
    session.release(first);
    EXPECT_EQ(filled(9), first) << "its memory is another's";
    device->finish();
    EXPECT_EQ(read, 7u) << "seed " << seed;
    EXPECT_THAT(device->complaints(), testing::IsEmpty());
  }
}

// An address that is known elsewhere: whatever ops name the tensor, and whatever needs room.
TEST(GpuSessionTest, WhatIsPinnedStaysUntilItIsFreed) {
  Session& session = begin(options_with("80M"));
  ManagedMemory memory(session);
  const Tensor known = memory.allocate(kWords);
  memory.op("make", Phase::forward, {known}, [&] { known[0] = 7; });
  Training training(memory);
  for (std::uint64_t i = 0; i < 4; ++i) training.step(i);
  EXPECT_TRUE(session.pin(known)) << "it had left, and comes";
  EXPECT_FALSE(session.pin(known));
  EXPECT_FALSE(session.pin(&session)) << "it is not the session's";
  for (std::uint64_t i = 4; i < 8; ++i) {
    memory.op("names", Phase::forward, {known}, [] {});
    training.step(i);
    memory.op("fill", Phase::forward, {}, [&] {  // but for four granules
      std::vector<Tensor> made;
      for (int n = 0; n < 12; ++n) made.push_back(memory.allocate(kWords));
      ASSERT_EQ(known[0], 7u);  // past any op
      for (Tensor tensor : made) memory.release(tensor);
    });
  }
  memory.release(known);
  EXPECT_EQ(*training.sum(), plain([](Training& same) {
    for (std::uint64_t i = 0; i < 8; ++i) same.step(i);
  }));
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

// Nothing is away and nothing will be: ops are not told, and cost no lock.
TEST(GpuSessionTest, WhileNothingIsAwayAnOpTakesNoLock) {
  Session& session = begin(options_with("400M"));
  ManagedMemory memory(session);
  Training training(memory);
  for (std::uint64_t i = 0; i < 6; ++i) training.step(i);
  ASSERT_FALSE(session.wants_ops());
  const Tensor any = memory.allocate(kWords);
  std::promise<void> heard, locked;
  auto op = std::async(std::launch::async, [&] {
    session.compute_on(nullptr);  // that this thread computes there is heard once
    heard.set_value();
    locked.get_future().wait();
    session.compute_on(nullptr);
    session.op_start("any", Phase::forward, nullptr);
    session.op_tensor(any, kBytes, SENTINEL_READ);
    session.op_run();
    session.op_end();
    session.layer("any", Phase::forward);
  });
  heard.get_future().wait();
  session.before_fork();  // holds the session's lock and the engine's
  locked.set_value();
  const bool ended = op.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  session.after_fork_in_parent();
  EXPECT_TRUE(ended);
  memory.release(any);
}

// A larger batch, say: what is told again from the next op on is then brought within the budget.
TEST(GpuSessionTest, OpsAreToldAgainAsSoonAsMemoryGetsShort) {
  const auto steps = [](Training& training) {
    for (std::uint64_t i = 0; i < 7; ++i) training.step(i, 0.5);
    for (std::uint64_t i = 7; i < 14; ++i) training.step(i);
    for (std::uint64_t i = 14; i < 20; ++i) training.step(i, 0.5);
  };
  for (unsigned seed = 0; seed < 4; ++seed) {
    const auto device = std::make_shared<gpu::FakeGpu>(seed, 1000, 2_MiB);
    auto options = options_with("164M");
    options.gpu.driver = device;
    Session& session = begin(std::move(options));
    ManagedMemory memory(session, device.get());
    Training training(memory);
    std::vector<bool> wanted;
    for (std::uint64_t i = 0; i < 20; ++i) {
      training.step(i, i < 7 || i >= 14 ? 0.5 : 1);
      wanted.push_back(session.wants_ops());
    }
    const auto sum = training.sum();
    device->finish();
    EXPECT_EQ(*sum, plain(steps)) << "seed " << seed;
    EXPECT_THAT(device->complaints(), testing::IsEmpty());
    EXPECT_FALSE(wanted[6]);
    EXPECT_TRUE(wanted[7]);
    session.finish("over");
  }
}

// Of an op that runs untold nobody knows what it uses: nothing is let go beside it, and beside what
// is let go none begins.
TEST(GpuSessionTest, AnUntoldOpAndWhatIsLetGoExcludeEachOther) {
  auto options = options_with("164M");
  options.gpu.driver = std::make_shared<gpu::FakeGpu>(0, 1000, 2_MiB);
  Session& session = begin(std::move(options));
  ManagedMemory memory(session);
  Training training(memory);
  for (std::uint64_t i = 0; i < 7; ++i) training.step(i, 0.5);
  ASSERT_FALSE(session.wants_ops());
  EXPECT_TRUE(session.untold(true));  // of another thread
  std::vector<Tensor> taken;
  while (const Tensor tensor = memory.allocate(kWords)) taken.push_back(tensor);
  ASSERT_TRUE(session.wants_ops());  // memory is short
  const auto told = [&] { memory.op("told", Phase::forward, {}, [] {}); };
  told();
  EXPECT_TRUE(session.untold(true)) << "beside the first one all is still kept";
  session.untold(false);
  session.untold(false);
  told();
  EXPECT_FALSE(session.untold(true));
  for (const Tensor tensor : taken) memory.release(tensor);
  session.finish("over");
}

}  // namespace
}  // namespace sentinel
