// Counting a GPU's accesses page by page. The device is fake_cuda.cpp, whose kernels run on the
// processor: what they open is really counted, by the patched kernel where there is one, and
// through fake_cupti.cpp.
#include "runtime/limit/gpu_counting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "capture/kernel_source.h"
#include "engine/gpu/pageable_engine.h"
#include "runtime/session.h"
#include "sentinel/error.h"
#include "trace/store.h"
#include "unit/engine/gpu/fake_gpu.h"
#include "unit/places.h"
#include "unit/runtime/begin_session.h"
#include "unit/runtime/gpu/gpu_training.h"
#include "unit/trace/sample_profile.h"

namespace sentinel {
namespace {

using rig::kBytes;
using rig::kLayers;
using rig::ManagedMemory;
using rig::PlainMemory;
using rig::Training;
using testing::HasSubstr;

constexpr std::uint64_t kPages = kBytes / 4096;  // of a tensor; the trainings use each of them

// A variable of the fake driver's, for one test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

std::string profile_path() {
  static const TestFolder folder;
  return folder / "gpu-counting.sentinel";
}

SessionOptions recording(const std::string& count) {
  SessionOptions options = options_from_environment();
  options.mode = Mode::record;
  options.output = profile_path();
  options.counting.source = count;
  options.counting.exact = true;
  options.counting.window_pages = gpu::kLeastWindow;
  options.quiet = true;
  options.tiers.arena_bytes = 16_GiB;
  options.gpu.device = 0;
  options.gpu.cuda = options.gpu.cupti = test::kFakeCuda;
  return options;
}

// Never destroyed: a session lives as long as its process.
Session& begin(SessionOptions options) {
  return test::begin_session(std::move(options), OpOrder::any);
}

std::string refusal(const SessionOptions& options) {
  try {
    begin(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "not refused";
}

std::uint64_t trained(Session& session, std::uint64_t steps) {
  ManagedMemory memory(session);
  Training training(memory);
  for (std::uint64_t i = 0; i < steps; ++i) training.step(i);
  const auto sum = *training.sum();
  session.finish("over");
  return sum;
}

std::uint64_t plain(std::uint64_t steps) {
  PlainMemory memory;
  Training training(memory);
  for (std::uint64_t i = 0; i < steps; ++i) training.step(i);
  return *training.sum();
}

// Openings of all tensors in the op of that name.
struct Openings {
  std::uint64_t reads = 0, writes = 0;
};
std::map<std::string, Openings> by_op(const Profile& profile) {
  std::map<std::string, Openings> sums;
  for (const auto& count : profile.accesses) {
    auto& sum = sums[profile.ops[count.op.index()].name];
    sum.reads += count.reads;
    sum.writes += count.writes;
  }
  return sums;
}

// Each op opens every page of its operands once: with that window none stays open to the next op.
void expect_each_page(const Profile& profile, std::uint64_t pages) {
  const auto counts = by_op(profile);
  for (std::size_t layer = 1; layer < kLayers; ++layer) {
    const auto number = std::to_string(layer);
    const auto& forward = counts.at("forward " + number);
    EXPECT_EQ(forward.reads, 2 * pages) << number;  // weights, and what came before
    EXPECT_EQ(forward.writes, pages) << number;
    const auto& backward = counts.at("backward " + number);
    EXPECT_EQ(backward.reads + backward.writes, 3 * pages) << number;
  }
}

TEST(GpuCounting, WhatIsNotAskedForIsNotTried) {
  for (const char* count : {"auto", "ops"}) {
    Session& session = begin(recording(count));
    EXPECT_EQ(trained(session, 5), plain(5));
    EXPECT_EQ(read_profile(profile_path()).meta.source, "ops");
  }
}

TEST(GpuCounting, WhatCannotCountIsRefusedWithTheReason) {
  EXPECT_THAT(refusal(recording("userfaultfd")), HasSubstr("SIGBUS"));
  EXPECT_THAT(refusal(recording("samples")), HasSubstr("not a GPU's"));
  auto options = recording("kernel");
  options.mode = Mode::run;
  EXPECT_THAT(refusal(options), HasSubstr("use it with sentinel record"));
  options = recording(kCupti);
  options.gpu.memory = "pools";
  EXPECT_THAT(refusal(options), HasSubstr("give --gpu-memory managed"));
  options = recording(kCupti);
  options.gpu.device.reset();
  EXPECT_THAT(refusal(options), HasSubstr("give --tiers fast=gpu0,slow=host"));
  options = recording("kernel");
  options.counting.window_pages = 64;
  EXPECT_THAT(refusal(options), HasSubstr("give 1024 or more"));
}

TEST(GpuCounting, TheKernelNeedsADeviceThatUsesPageableMemory) {
  const auto told = refusal(recording("kernel"));
  EXPECT_THAT(told, HasSubstr("CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS is 0"));
  EXPECT_EQ(told.find("/dev/sentinel") != told.npos, KernelSource::probe() != 0);
}

TEST(GpuCounting, TheKernelNeedsItsPatch) {
  const Variable pageable("SENTINEL_FAKE_CUDA_PAGEABLE", "hmm");
  if (KernelSource::probe() == 0) GTEST_SKIP() << "this kernel has it";
  const auto told = refusal(recording("kernel"));
  EXPECT_THAT(told, HasSubstr("/dev/sentinel"));
  EXPECT_THAT(told, testing::Not(HasSubstr("ATTRIBUTE")));
}

TEST(GpuCounting, PageFaultsNeedALibraryAPermissionAndADevice) {
  auto options = recording(kCupti);
  options.gpu.cupti = "libno-such-cupti.so";
  EXPECT_THAT(refusal(options), HasSubstr("libno-such-cupti.so.13"));
  {
    const Variable failing("SENTINEL_FAKE_CUPTI_FAIL", "cuptiActivityEnable:35");
    EXPECT_THAT(
        refusal(recording(kCupti)),
        HasSubstr("--count cupti: cuptiActivityEnable: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"));
  }
  options = recording(kCupti);
  options.gpu.driver = std::make_shared<gpu::FakeGpu>(1, 400, 2_MiB);
  EXPECT_THAT(refusal(options), HasSubstr("CONCURRENT_MANAGED_ACCESS is 0"));
}

void expect_a_run_takes_the_profile() {
  auto options = recording("auto");
  options.mode = Mode::run;
  options.profile = profile_path();
  options.output.clear();
  options.gpu.memory = "pools";
  options.summary = profile_path() + ".json";
  options.machine = "v100-16gb";
  options.fast = parse_budget("45%");
  EXPECT_EQ(trained(begin(options), 6), plain(6));
  std::ifstream file(options.summary);
  const auto summary = nlohmann::json::parse(file);
  EXPECT_EQ(summary["steps"].back()["phase"], "steady");
  for (const auto& step : summary["steps"]) EXPECT_NE(step["phase"], "profile");
}

// Records as CUDA 12 and 13 lay them out.
class GpuCountingByFaults : public testing::TestWithParam<const char*> {};

TEST_P(GpuCountingByFaults, CountsThePagesThatAnOpOpens) {
  const Variable record("SENTINEL_FAKE_CUPTI_RECORD", GetParam());
  Session& session = begin(recording(kCupti));
  EXPECT_EQ(trained(session, 5), plain(5));
  const auto profile = read_profile(profile_path());
  EXPECT_EQ(profile.meta.source, "cupti");
  EXPECT_FALSE(profile.meta.exact);
  EXPECT_TRUE(profile.meta.read_write);
  EXPECT_TRUE(profile.meta.complete);
  EXPECT_EQ(profile.meta.incomplete_reason, "");
  EXPECT_EQ(profile.meta.window_pages, 0u);
  EXPECT_EQ(profile.meta.sample_error, 0);
  for (const auto& tensor : profile.tensors) EXPECT_EQ(tensor.sample_stride, 1u);
  expect_each_page(profile, kPages);
  expect_a_run_takes_the_profile();
}
INSTANTIATE_TEST_SUITE_P(Layouts, GpuCountingByFaults, testing::Values("64", "104"));

// Training goes on, and the profile says what it lacks, and why.
TEST(GpuCounting, CountsThatAreLostAreStated) {
  {
    const Variable failing("SENTINEL_FAKE_CUPTI_FAIL", "cuptiActivityFlushAll:999:30");
    EXPECT_EQ(trained(begin(recording(kCupti)), 5), plain(5));
    const auto meta = read_profile(profile_path()).meta;
    EXPECT_TRUE(meta.complete);
    EXPECT_GT(meta.sample_error, 0);
    EXPECT_THAT(meta.incomplete_reason,
                testing::ContainsRegex("tensors were not counted.*: cuptiActivityFlushAll: "));
    EXPECT_THAT(meta.incomplete_reason,
                testing::ContainsRegex("counts of [0-9]+ of [0-9]+ ops are lost, or went to later "
                                       "ones: cuptiActivityFlushAll: CUPTI_ERROR_UNKNOWN"));
  }
  // Behind the prefetches of the tensors that live when counting begins.
  const Variable failing("SENTINEL_FAKE_CUDA_FAIL", "cuMemPrefetchAsync_v2:60");
  EXPECT_EQ(trained(begin(recording(kCupti)), 5), plain(5));
  const auto meta = read_profile(profile_path()).meta;
  EXPECT_THAT(meta.incomplete_reason,
              HasSubstr("cuMemPrefetchAsync_v2: CUDA_ERROR_ILLEGAL_ADDRESS"));
}

// They do not fault; in the next op they would be missed if they stayed.
TEST(GpuCounting, WhatComesAlongIsMovedBackWithThePage) {
  const Variable along("SENTINEL_FAKE_CUPTI_ALONG", "16");
  auto options = recording(kCupti);
  options.counting.exact = false;  // every page is armed all the same
  EXPECT_EQ(trained(begin(options), 5), plain(5));
  expect_each_page(read_profile(profile_path()), kPages / 16);
}

// A run in managed memory profiles its own step so, under a budget from its first tensor on.
TEST(GpuCounting, ARunInManagedMemoryCountsFaults) {
  auto options = recording(kCupti);
  options.mode = Mode::run;
  options.machine = "v100-16gb";
  options.fast = parse_budget("64M");
  options.summary = profile_path() + ".json";
  EXPECT_EQ(trained(begin(options), 8), plain(8));
  const auto profile = read_profile(profile_path());
  EXPECT_EQ(profile.meta.source, "cupti");
  EXPECT_GT(profile.accesses.size(), kLayers);
}

// In the patched kernel's guest (tests/kernel).
class GpuCountingInTheKernel : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const int code = KernelSource::probe(); code != 0)
      GTEST_SKIP() << "no patched kernel (/dev/sentinel): " << std::strerror(-code);
  }
};

TEST_P(GpuCountingInTheKernel, CountsWhatTheDevicesKernelsOpen) {
  const Variable pageable("SENTINEL_FAKE_CUDA_PAGEABLE", GetParam());
  Session& session = begin(recording("kernel"));
  EXPECT_EQ(trained(session, 5), plain(5));
  const auto profile = read_profile(profile_path());
  EXPECT_EQ(profile.meta.source, std::string("kernel-") + GetParam());
  EXPECT_FALSE(profile.meta.exact);
  EXPECT_TRUE(profile.meta.complete);
  EXPECT_EQ(profile.meta.window_pages, gpu::kLeastWindow);
  expect_each_page(profile, kPages);
}

// By sampled pages the sums are the same here, for all pages of a tensor are used alike.
TEST_P(GpuCountingInTheKernel, SampledPagesStandForTheirTensor) {
  const Variable pageable("SENTINEL_FAKE_CUDA_PAGEABLE", GetParam());
  auto options = recording("kernel");
  options.counting.exact = false;
  options.counting.window_pages = 0;
  Session& session = begin(options);
  EXPECT_EQ(trained(session, 5), plain(5));
  const auto profile = read_profile(profile_path());
  EXPECT_GE(profile.meta.window_pages, gpu::kLeastWindow);
  EXPECT_GT(by_op(profile).at("forward 3").writes, kPages / 2);
}

TEST_P(GpuCountingInTheKernel, ARunTakesTheProfile) {
  const Variable pageable("SENTINEL_FAKE_CUDA_PAGEABLE", GetParam());
  Session& session = begin(recording("kernel"));
  trained(session, 5);
  expect_a_run_takes_the_profile();
}
INSTANTIATE_TEST_SUITE_P(ByEveryWay, GpuCountingInTheKernel, testing::Values("hmm", "ats"));

// ---------------------------------------------------------------- the engine of such a recording

// A device that follows the page tables; what was advised to stay on the host is noted.
class PageableGpu final : public gpu::FakeGpu {
 public:
  explicit PageableGpu(gpu::Pageable pageable) : FakeGpu(1, 4), pageable_(pageable) {}
  gpu::Pageable pageable() override { return pageable_; }
  void prefer_host(std::uintptr_t address, std::uint64_t bytes) override {
    EXPECT_TRUE(on_host.emplace(address, bytes).second);
    advised += bytes;
  }
  std::map<std::uintptr_t, std::uint64_t> on_host;
  std::uint64_t advised = 0;

 private:
  gpu::Pageable pageable_;
};

TEST(PageableEngine, AnOpEndsWhenItHasBeenComputed) {
  PageableGpu device(gpu::Pageable::shared);
  gpu::PageableEngine engine(device, 64_MiB);
  const auto stream = device.make_stream();
  engine.compute_on(stream);
  ASSERT_TRUE(engine.on_allocate(engine.arena(), 1_MiB));
  auto* const word = reinterpret_cast<std::uint64_t*>(engine.arena());
  for (std::uint64_t i = 1; i < 4; ++i) {
    device.launch(stream, {}, [=] { *word += i; });
    engine.finish();
  }
  EXPECT_EQ(*word, 6u);
  EXPECT_EQ(engine.counters().held_bytes, 1_MiB);
  engine.on_free(engine.arena(), 1_MiB, true);
  EXPECT_EQ(engine.counters().held_bytes, 0u);
  EXPECT_EQ(engine.counters().peak_bytes, 1_MiB);
  engine.forget(stream);
  device.destroy_stream(stream);
}

// Once for each granule, and only where a copy on the device would hide accesses.
TEST(PageableEngine, MirroredMemoryStaysOnTheHost) {
  PageableGpu mirrored(gpu::Pageable::mirrored), shared(gpu::Pageable::shared);
  for (auto* device : {&mirrored, &shared}) {
    gpu::PageableEngine engine(*device, 64_MiB);
    engine.on_allocate(engine.arena() + 3_MiB, 4_MiB);
    engine.on_allocate(engine.arena() + 5_MiB, 8_MiB);
    engine.on_allocate(engine.arena() + 5_MiB, 1_MiB);
  }
  EXPECT_EQ(mirrored.advised, 14_MiB);  // the first granule at the beginning, and 1 to 6
  EXPECT_EQ(shared.advised, 0u);
}

TEST(PageableEngine, ADriverThatRefusesTheAdviceIsTold) {
  const Variable pageable("SENTINEL_FAKE_CUDA_PAGEABLE", "hmm");
  const Variable failing("SENTINEL_FAKE_CUDA_FAIL", "cuMemAdvise_v2:1");
  const auto driver = gpu::open_driver(0, test::kFakeCuda);
  EXPECT_EQ(driver->pageable(), gpu::Pageable::mirrored);
  EXPECT_THROW(gpu::PageableEngine(*driver, 64_MiB), gpu::DriverError);
}

}  // namespace
}  // namespace sentinel
