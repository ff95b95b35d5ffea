// Several devices in one process: a session manages one, and memory of another is the driver's. The
// devices are fake_cuda.cpp's.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/gpu/unmanaged.h"
#include "runtime/session.h"
#include "sentinel/error.h"
#include "unit/places.h"
#include "unit/runtime/begin_session.h"
#include "unit/runtime/gpu/gpu_training.h"

namespace sentinel {
namespace {

using gpu::Unmanaged;
using rig::kWords;
using rig::ManagedMemory;
using rig::Tensor;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A function of a driver's library, by its name.
template <class... Arguments>
int call_in(const char* library, const char* name, Arguments... arguments) {
  void* opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<int (*)(Arguments...)>(dlsym(opened, name))(arguments...);
}
template <class... Arguments>
int call(const char* name, Arguments... arguments) {
  return call_in(test::kFakeCuda, name, arguments...);
}
bool reaches(int device, const void* address) {
  return call("fake_cuda_reaches", device, reinterpret_cast<std::uint64_t>(address)) != 0;
}

class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { unsetenv(name_); }

 private:
  const char* name_;
};

std::uint64_t free_bytes(int device) {
  return gpu::open_driver(device, test::kFakeCuda)->free_bytes();
}
void expect_refused(const std::function<void()>& f, const std::string& text) {
  try {
    f();
    ADD_FAILURE() << "not refused: " << text;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

class UnmanagedTest : public testing::Test {
 protected:
  explicit UnmanagedTest(std::string library = test::kFakeCuda) : library_(std::move(library)) {}
  void TearDown() override { EXPECT_THAT(kept(), IsEmpty()); }

  // What helpers were refused since this was asked last.
  std::vector<std::string> kept() {
    unmanaged.settle();
    const std::lock_guard guard(lock_);
    return std::exchange(kept_, {});
  }
  std::uint64_t held() { return unmanaged.figures(1, false).held_bytes; }
  std::uint64_t live() { return unmanaged.figures(1, false).live_bytes; }

 private:
  const std::string library_;
  std::mutex lock_;
  std::vector<std::string> kept_;

 protected:
  Unmanaged unmanaged{[this](int device) { return gpu::open_driver(device, library_); },
                      [this](int, const std::exception& why) {
                        const std::lock_guard guard(lock_);
                        kept_.emplace_back(why.what());
                      }};
};

TEST_F(UnmanagedTest, GivesMemoryOfTheDeviceAndCountsIt) {
  const auto first = free_bytes(0), second = free_bytes(1);
  void* program = nullptr;  // whose choice of device stays
  call("cuDevicePrimaryCtxRetain", &program, 0);
  call("cuCtxPushCurrent_v2", program);
  auto* memory = static_cast<char*>(unmanaged.allocate(1, 3_MiB));
  memory[3_MiB - 1] = 1;
  void* small = unmanaged.allocate(1, 600);
  EXPECT_EQ(live(), 3_MiB + 600);
  EXPECT_EQ(held(), 3_MiB + 600);
  EXPECT_EQ(free_bytes(1), second - 3_MiB - 600);
  unmanaged.release(1, memory);
  const auto figures = unmanaged.figures(1, true);  // the helper may have begun
  EXPECT_EQ(figures.most_live_bytes, 3_MiB + 600);
  EXPECT_EQ(figures.most_held_bytes, 3_MiB + 600);
  EXPECT_EQ(unmanaged.figures(1, false).most_live_bytes, 600u);
  unmanaged.release(1, small);
  EXPECT_EQ(live(), 0u);
  EXPECT_EQ(unmanaged.figures(0, false).most_live_bytes, 0u);
  unmanaged.settle();
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(free_bytes(1), second);
  EXPECT_EQ(free_bytes(0), first);
  EXPECT_EQ(call("fake_cuda_context"), 0);
  call("cuCtxPopCurrent_v2", &program);
  EXPECT_EQ(call("fake_cuda_context"), -1);
}

TEST_F(UnmanagedTest, AtItsEndWhatWasReleasedIsGivenBack) {
  const auto free = free_bytes(1);
  {
    Unmanaged ends([](int device) { return gpu::open_driver(device, test::kFakeCuda); },
                   [](int, const std::exception&) {});
    for (int i = 0; i < 20; ++i) ends.release(1, ends.allocate(1, 1_MiB));
  }
  EXPECT_EQ(free_bytes(1), free);
}

TEST_F(UnmanagedTest, AFullDeviceIsToldAndAskedAgain) {
  const Environment small("SENTINEL_FAKE_CUDA_BYTES", std::to_string(64_MiB));
  void* first = unmanaged.allocate(1, 40_MiB);
  EXPECT_EQ(unmanaged.allocate(1, 32_MiB), nullptr);
  EXPECT_EQ(unmanaged.why_full(1, 32_MiB),
            "gpu1 has no room for 32.0 MiB: 40.0 MiB of tensors are alive there, 24.0 MiB are "
            "free");
  unmanaged.release(1, first);
  void* second = unmanaged.allocate(1, 32_MiB);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(live(), 32_MiB);
  EXPECT_EQ(held(), 32_MiB);
  unmanaged.release(1, second);
}

// By an event of the whole context, and, of a driver that has none, by waiting for the device.
class Leaving : public UnmanagedTest, public testing::WithParamInterface<const char*> {
 protected:
  Leaving() : UnmanagedTest(GetParam()) { call("fake_cuda_hold", 1, 1); }
  ~Leaving() override { go_on(); }
  template <class... Arguments>
  static void call(const char* name, Arguments... arguments) {
    call_in(GetParam(), name, arguments...);
  }
  static void go_on() { call("fake_cuda_hold", 1, 0); }
};

TEST_P(Leaving, MemoryGoesAfterWhatTheDeviceWasGivenAndNobodyWaits) {
  void* memory = unmanaged.allocate(1, 1_MiB);
  call("fake_cuda_launch", 1);
  unmanaged.release(1, memory);
  EXPECT_EQ(live(), 0u);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(held(), 1_MiB);
  go_on();
  unmanaged.settle();
  EXPECT_EQ(held(), 0u);
}

TEST_P(Leaving, WhoFindsTheDeviceFullWaitsForWhatLeaves) {
  const Environment small("SENTINEL_FAKE_CUDA_BYTES", std::to_string(64_MiB));
  void* first = unmanaged.allocate(1, 32_MiB);
  call("fake_cuda_launch", 1);
  unmanaged.release(1, first);
  void* second = unmanaged.allocate(1, 8_MiB);  // beside it
  auto third = std::async(std::launch::async, [&] { return unmanaged.allocate(1, 32_MiB); });
  EXPECT_EQ(third.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  go_on();
  void* waited = third.get();
  EXPECT_NE(waited, nullptr);
  EXPECT_EQ(unmanaged.allocate(1, 32_MiB), nullptr);  // since nothing is leaving any more
  for (void* memory : {second, waited}) unmanaged.release(1, memory);
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutAnEvent, Leaving,
                         testing::Values(test::kFakeCuda, test::kFakeCuda11),
                         [](const auto& library) {
                           return library.index == 0 ? "AsOfCuda12_5" : "Before";
                         });

TEST_F(UnmanagedTest, ARefusedCallIsNamed) {
  for (const std::string name :
       {"cuInit", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuMemAlloc_v2"}) {
    const Environment refused("SENTINEL_FAKE_CUDA_FAIL", name + ":1");
    const auto told = name.substr(0, name.find("_v2"));
    expect_refused([&] { unmanaged.allocate(1, 1_MiB); }, told);
    EXPECT_EQ(held(), 0u);
  }
}

TEST_F(UnmanagedTest, WhatIsNotTakenBackIsToldAndTriedAgain) {
  for (const std::string name : {"cuCtxRecordEvent", "cuEventSynchronize", "cuMemFree_v2"}) {
    void* memory = unmanaged.allocate(1, 1_MiB);
    void* next = unmanaged.allocate(1, 1_MiB);
    {
      const Environment refused("SENTINEL_FAKE_CUDA_FAIL", name + ":1");
      unmanaged.release(1, memory);
      EXPECT_THAT(kept(), ElementsAre(name + ": CUDA_ERROR_ILLEGAL_ADDRESS"));
    }
    EXPECT_EQ(live(), 1_MiB);
    EXPECT_EQ(held(), 2_MiB);
    expect_refused([&] { unmanaged.release(1, memory); }, "gpu1: what was freed is no live tensor");
    unmanaged.release(1, next);
    EXPECT_THAT(kept(), IsEmpty());
    EXPECT_EQ(held(), 0u);
  }
}

// ---------------------------------------------------------------- beside a session

SessionOptions options(const std::string& memory = "pools") {
  SessionOptions options = options_from_environment();
  options.mode = Mode::run;
  options.counting.source = "auto";
  options.tiers.arena_bytes = 1_GiB;
  options.gpu.device = 0;
  options.gpu.memory = memory;
  options.gpu.cuda = test::kFakeCuda;
  options.machine = "v100-16gb";  // not measured
  options.fast = parse_budget("64M");
  options.output = testing::TempDir() + "gpu-devices-" + std::to_string(getpid()) + ".sentinel";
  setenv("XDG_CACHE_HOME", (options.output + ".d").c_str(), 1);
  return options;
}

// Never destroyed: a session lives as long as its process.
Session& begin(const SessionOptions& options) { return test::begin_session(options, OpOrder::any); }

std::string told_of(Session& session) {
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) session.others().release(1, session.others().allocate(1, 1_MiB));
  return testing::internal::GetCapturedStderr();
}

TEST(GpuDevices, AnotherIsToldOnceNotToBeManaged) {
  const std::string line =
      "sentinel: gpu1 is not managed, gpu0 is: tensors of gpu1 stay there, outside --fast";
  EXPECT_EQ(told_of(begin(options())), line + "\n");
  const Environment apart("SENTINEL_FAKE_CUDA_APART", "1");
  EXPECT_EQ(told_of(begin(options())),
            line +
                ". It cannot reach what lies on the other: copy by way of the processor, or "
                "take --gpu-memory managed\n");
  EXPECT_EQ(told_of(begin(options("managed"))), line + "\n");
}

TEST(GpuDevices, AnotherReachesWhatIsMapped) {
  Session& session = begin(options());
  ManagedMemory memory(session);
  const Tensor before = memory.allocate(kWords);
  EXPECT_TRUE(reaches(0, before));
  EXPECT_FALSE(reaches(1, before));
  session.others().release(1, session.others().allocate(1, 1_MiB));
  const Tensor after = memory.allocate(kWords);
  for (const Tensor tensor : {before, after})
    for (std::size_t word = 0; word < kWords; word += kWords / 3)
      EXPECT_TRUE(reaches(0, tensor + word) && reaches(1, tensor + word)) << word;
}

TEST(GpuDevices, WhereItsWayIsRefusedTheAllocationIs) {
  Session& session = begin(options());
  ManagedMemory memory(session);
  const Tensor tensor = memory.allocate(kWords);
  {
    const Environment refused("SENTINEL_FAKE_CUDA_FAIL", "cuMemSetAccess:1");
    expect_refused([&] { session.others().allocate(1, 1_MiB); }, "cuMemSetAccess: ");
  }
  EXPECT_NE(session.others().allocate(1, 1_MiB), nullptr);
  EXPECT_TRUE(reaches(1, tensor));
}

TEST(GpuDevices, MemoryOfAnotherIsNotOfTheBudget) {
  Session& session = begin(options());
  void* memory = session.others().allocate(1, 100_MiB);
  EXPECT_FALSE(session.owns(memory));
  EXPECT_EQ(session.memory().live_bytes, 0u);
  const auto told = session.others().figures(1);
  EXPECT_EQ(told.live_bytes, 100_MiB);
  EXPECT_EQ(told.held_bytes, 100_MiB);
  EXPECT_EQ(told.budget_bytes, 0u);
  session.others().release(1, memory);
  EXPECT_EQ(session.others().figures(1).most_held_bytes, 100_MiB);
}

// A framework frees where nothing may be thrown.
TEST(GpuDevices, WhatIsNotGivenBackIsToldOnceAndTheProgramGoesOn) {
  Session& session = begin(options());
  const auto refused = [&] {
    void* kept = session.others().allocate(1, 1_MiB);
    void* next = session.others().allocate(1, 600);
    const auto before = session.others().figures(1).held_bytes;
    const Environment failing("SENTINEL_FAKE_CUDA_FAIL", "cuMemFree_v2:1");
    testing::internal::CaptureStderr();
    for (void* memory : {kept, next}) session.others().release(1, memory);
    while (session.others().figures(1).held_bytes == before) std::this_thread::yield();
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(refused(),
            "sentinel: memory of gpu1 is not given back: cuMemFree_v2: "
            "CUDA_ERROR_ILLEGAL_ADDRESS\n");
  EXPECT_EQ(refused(), "");
  EXPECT_EQ(session.others().figures(1).live_bytes, 0u);
}

// Which comes after the interpreter's, by which its tensors are freed.
TEST(GpuDevices, AtTheProgramsEndNobodyIsInACallOfTheDriver) {
  Session& session = begin(options());
  void* memory = session.others().allocate(1, 1_MiB);
  session.finish("the interpreter ends");
  call("fake_cuda_hold", 1, 1);
  call("fake_cuda_launch", 1);
  session.others().release(1, memory);
  auto ended = std::async(std::launch::async, [&] { session.program_ends(); });
  EXPECT_EQ(ended.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  call("fake_cuda_hold", 1, 0);
  ended.get();
  EXPECT_EQ(session.others().figures(1).held_bytes, 0u);
}

TEST(GpuDevices, AForkedChildAsksNoDriver) {
  Session& session = begin(options());
  void* memory = session.others().allocate(1, 1_MiB);
  session.before_fork();
  const pid_t child = fork();
  if (child == 0) {
    session.after_fork_in_child();
    const Environment refused("SENTINEL_FAKE_CUDA_FAIL", "cuCtxPushCurrent_v2:1");
    testing::internal::CaptureStderr();
    session.others().release(1, memory);
    const bool silent = testing::internal::GetCapturedStderr().empty();
    expect_refused([&] { session.others().allocate(1, 1); }, "forked child");
    const bool counted = session.others().figures(1).live_bytes == 1_MiB;
    _exit(silent && counted && !testing::Test::HasFailure() ? 7 : 8);
  }
  session.after_fork_in_parent();
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  session.others().release(1, memory);
  EXPECT_EQ(session.others().figures(1).live_bytes, 0u);
}

}  // namespace
}  // namespace sentinel
