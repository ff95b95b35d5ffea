// Sessions on a GPU whose work is done late, and in several threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/gpu/managed_driver.h"
#include "runtime/session.h"
#include "unit/engine/gpu/fake_gpu.h"
#include "unit/engine/gpu/second_thread.h"
#include "unit/runtime/gpu/gpu_session_rig.h"

namespace sentinel {
namespace {

using rig::begin;
using rig::kBytes;
using rig::kLayers;
using rig::kWords;
using rig::ManagedMemory;
using rig::options_with;
using rig::plain;
using rig::scratch;
using rig::Tensor;
using rig::train;
using rig::Training;

// Kernels and copies run when the device pleases, in every order that streams and events allow.
class LateGpuSession : public testing::TestWithParam<unsigned> {};

SessionOptions on_late_device(std::shared_ptr<gpu::FakeGpu> device) {
  auto options = options_with("45%");
  options.machine = "v100-16gb";  // this one would take its time to be measured
  options.gpu.driver = std::move(device);
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
  options.gpu.driver = device;
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
  options.gpu.memory = "managed";
  options.gpu.driver = gpu::make_managed_driver(std::move(below));
  EXPECT_EQ(train(std::move(options), steps, &device).sum, plain(steps));
  EXPECT_GT(device.prefetched_in(), 0u);
  EXPECT_GT(device.prefetched_out(), 0u);
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

}  // namespace
}  // namespace sentinel
