// Which memory of a GPU's there is and how fast it is: options, measurement, the driver's calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/gpu/managed_driver.h"
#include "measure/measure.h"
#include "plan/check/plan_file.h"
#include "runtime/session.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "trace/store.h"
#include "unit/engine/gpu/fake_gpu.h"
#include "unit/places.h"
#include "unit/runtime/gpu/gpu_session_rig.h"
#include "unit/trace/sample_profile.h"

namespace sentinel {
namespace {

using rig::begin;
using rig::options_with;
using rig::plain;
using rig::scratch;
using rig::train;
using rig::Training;

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
  options.gpu.memory = GetParam();
  const auto driver = open_gpu(options);
  const auto before = driver->free_bytes();
  const auto machine = measure_gpu(*driver, "local-gpu0");
  EXPECT_EQ(driver->free_bytes(), before);
  ASSERT_EQ(machine.tiers.size(), 2u);
  EXPECT_EQ(machine.tiers[0].name, "hbm");
  EXPECT_EQ(machine.tiers[0].capacity, before);
  EXPECT_EQ(machine.tiers[1].capacity, 0u)
      << "no limit: the host's memory may grow as it is touched";
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
  options.gpu.driver = device;
  const auto [sum, summary] = train(std::move(options), steps, device.get());
  EXPECT_EQ(sum, plain(steps));
  EXPECT_GT(summary["steps"].back()["promoted_bytes"], 0);
}

TEST(CudaDriver, UnmapsNeighboursTogetherButNoPartOfAny) {
  const auto driver = gpu::open_driver(0, test::kFakeCuda);
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

TEST(CudaDriver, GivesAccessToNeighboursByOneCall) {
  const auto driver = gpu::open_driver(0, test::kFakeCuda);
  const auto range = driver->reserve(12_MiB);
  const std::vector chunks{*driver->create(4_MiB), *driver->create(4_MiB), *driver->create(4_MiB)};
  setenv("SENTINEL_FAKE_CUDA_FAIL", "cuMemSetAccess:2", 1);
  EXPECT_NO_THROW(driver->map_all(range, 4_MiB, chunks));
  unsetenv("SENTINEL_FAKE_CUDA_FAIL");
  driver->unmap(range, 12_MiB);
  for (const auto chunk : chunks) driver->destroy(chunk);
  driver->unreserve(range, 12_MiB);
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
    const bool once =
        first != told.npos && told.find("unmapped one by one", first + 1) == told.npos;
    std::fprintf(stderr, "%s", told.c_str());
    std::_Exit(same && once ? 0 : 1);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(trains(), testing::ExitedWithCode(0), "");
}

// As of CUDA 12.2 a place is a location, before that a device. The fakes refuse any other.
TEST(CudaDriver, PlacesManagedMemoryByTheCallsThatItHas) {
  for (const char* library : {test::kFakeCuda, test::kFakeCuda11}) {
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
  options.gpu.cuda = test::kFakeCudaPools;
  const auto steps = [](Training& training) {
    for (std::uint64_t i = 0; i < 6; ++i) training.step(i);
  };
  EXPECT_EQ(train(options, steps).sum, plain(steps));
  options.gpu.memory = "managed";
  EXPECT_THROW(begin(options), Error);
  EXPECT_THROW(gpu::open_driver(0, options.gpu.cuda)->prefer_host(0, 1), Error);
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
  EXPECT_EQ(options_from_environment().gpu.memory, "auto");
  setenv("SENTINEL_GPU_MEMORY", "both", 1);
  EXPECT_THROW(options_from_environment(), Error);
  unsetenv("SENTINEL_GPU_MEMORY");
}

// The fake device has 16 GiB.
TEST(GpuMemory, IsManagedWhereThatIsFasterAndHoldsAllOfWhatIsStored) {
  auto options = options_with("40%");
  options.gpu.memory = "auto";
  const auto chosen = [&](double pools, double managed) {
    const auto known = [&](const SessionOptions& way) {
      if (managed < 0 && way.gpu.memory == "managed") throw Error("no managed memory");
      Machine machine;
      machine.links.push_back({.bw = way.gpu.memory == "managed" ? managed : pools});
      return machine;
    };
    return with_gpu_memory(options, known).gpu.memory;
  };
  EXPECT_EQ(chosen(1e9, 2e9), "pools");  // nothing tells how much it has to hold
  options.profile = scratch("-small.sentinel");
  auto profile = sample_profile();
  write_profile(options.profile, profile);
  EXPECT_EQ(chosen(1e9, 2e9), "managed");
  EXPECT_EQ(chosen(1e9, 1.01e9), "pools");
  EXPECT_EQ(chosen(1e9, -1), "pools");
  EXPECT_EQ(chosen(0, 1e9), "pools");  // a machine file without a link
  options.gpu.host_bytes = 1_GiB;
  EXPECT_EQ(chosen(1e9, 2e9), "pools");
  options.gpu.host_bytes = 0;
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
  options.gpu.memory = "managed";
  EXPECT_EQ(chosen(2e9, 1e9), "managed");
}

TEST(GpuMemory, IsChosenOnTheDeviceItself) {
  auto options = options_with("40%");
  options.gpu.memory = "auto";
  const auto steps = [](Training& training) {
    for (std::uint64_t i = 0; i < 6; ++i) training.step(i);
  };
  EXPECT_EQ(train(options, steps).sum, plain(steps));
  const auto stored = scratch("-stored.sentinel");
  std::filesystem::copy_file(options.output, stored);
  options.profile = stored;
  std::vector<std::string> measured;
  const auto settled = with_gpu_memory(options, [&](const SessionOptions& way) {
    measured.push_back(way.gpu.memory);
    return known_machine(way);
  });
  EXPECT_THAT(measured, testing::UnorderedElementsAre("pools", "managed"));
  EXPECT_THAT(settled.gpu.memory, testing::AnyOf("pools", "managed"));
}

// Each is measured as a machine of its own.
TEST(GpuGranule, IsAPowerOfTwoAndPartOfTheMachine) {
  setenv("SENTINEL_TIERS", "fast=gpu0,slow=host", 1);
  EXPECT_EQ(options_from_environment().tiers.granule_bytes, 2_MiB);
  EXPECT_EQ(local_machine(options_from_environment()), "local-gpu0-auto");
  setenv("SENTINEL_GRANULE", "16M", 1);
  EXPECT_EQ(options_from_environment().tiers.granule_bytes, 16_MiB);
  EXPECT_EQ(local_machine(options_from_environment()), "local-gpu0-auto-16m");
  setenv("SENTINEL_HOST_MEMORY", "255M", 1);
  EXPECT_THROW(options_from_environment(), Error) << "sixteen granules are the least";
  setenv("SENTINEL_HOST_MEMORY", "263M", 1);
  EXPECT_EQ(options_from_environment().gpu.host_bytes, 256_MiB);
  unsetenv("SENTINEL_HOST_MEMORY");
  for (const char* wrong : {"4K", "1M", "24M", "128M", "much"}) {
    setenv("SENTINEL_GRANULE", wrong, 1);
    EXPECT_THROW(options_from_environment(), Error) << wrong;
  }
  unsetenv("SENTINEL_TIERS");
  setenv("SENTINEL_GRANULE", "16M", 1);
  EXPECT_EQ(options_from_environment().tiers.granule_bytes, 2_MiB) << "it is of no SSD";
  unsetenv("SENTINEL_GRANULE");
}

TEST(GpuGranule, TrainsAndIsMeasuredInGranulesOfAnySize) {
  const auto steps = [](Training& training) {
    for (std::uint64_t i = 0; i < 8; ++i) training.step(i);
  };
  for (const auto& [granule, fast] : {std::pair{4_MiB, "60%"}, std::pair{16_MiB, "240M"}}) {
    const auto device = std::make_shared<gpu::FakeGpu>(1, 1_GiB / granule, granule);
    auto options = options_with(fast);
    options.tiers.granule_bytes = granule;
    options.gpu.driver = device;
    EXPECT_EQ(measure_gpu(*device, "pools", granule).granule_bytes, granule);
    options.machine = "v100-16gb";
    const auto [sum, summary] = train(options, steps, device.get());
    EXPECT_EQ(sum, plain(steps));
    EXPECT_EQ(summary["granule_bytes"], granule);
    EXPECT_EQ(summary["steps"].back()["demoted_bytes"] > 0, granule == 4_MiB) << granule;
    EXPECT_LE(summary["peak_fast_bytes"], summary["fast_limit_bytes"]);
  }
  gpu::FakeGpu finer(1, 512, 2_MiB);
  EXPECT_EQ(measure_gpu(finer, "pools", 16_MiB).granule_bytes, 16_MiB);
  auto options = options_with("240M");  // of the tests' library, whose unit is smaller
  options.tiers.granule_bytes = 16_MiB;
  const auto [sum, summary] = train(options, steps);
  EXPECT_EQ(sum, plain(steps));
  EXPECT_EQ(summary["granule_bytes"], 16_MiB);
  options.gpu.host_bytes = 256_MiB;
  options.tiers.slow_directory = testing::TempDir();
  options.tiers.allow_tmpfs = true;
  options.machine = "v100-16gb";
  EXPECT_EQ(train(options, steps).sum, plain(steps));
}

TEST(HostMemory, IsBesideAGpusPools) {
  EXPECT_EQ(options_from_environment().gpu.host_bytes, 0u);
  setenv("SENTINEL_HOST_MEMORY", "65M", 1);
  EXPECT_THROW(options_from_environment(), Error);
  setenv("SENTINEL_TIERS", "fast=gpu0,slow=host", 1);
  EXPECT_EQ(options_from_environment().gpu.host_bytes, 64_MiB);
  for (const char* too_little : {"0", "31M", "-1", "much"}) {
    setenv("SENTINEL_HOST_MEMORY", too_little, 1);
    EXPECT_THROW(options_from_environment(), Error) << too_little;
  }
  setenv("SENTINEL_HOST_MEMORY", "64M", 1);
  setenv("SENTINEL_IO", kCuFile, 1);
  EXPECT_EQ(options_from_environment().moves.io, kCuFile);
  unsetenv("SENTINEL_HOST_MEMORY");
  EXPECT_EQ(options_from_environment().moves.io, "auto");
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
