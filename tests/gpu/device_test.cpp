// The engine of a GPU's memory on a real device. Skips with the reason where there is none, and
// fails where there is one that refuses; the engine's logic is tested without one
// (unit/engine/gpu/gpu_engine_test.cpp). SENTINEL_CUDA names another driver's library, as in a
// session: the tests' own runs all of this but kernels.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "capture/kernel_source.h"
#include "engine/gpu/fault_source.h"
#include "engine/gpu/gpu_engine.h"
#include "engine/gpu/managed_driver.h"
#include "engine/gpu/page_faults.h"
#include "engine/gpu/pageable_engine.h"
#include "touch_kernel.h"

namespace sentinel::gpu {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

std::string library() {
  const char* named = std::getenv("SENTINEL_CUDA");
  return named != nullptr ? named : "libcuda.so.1";
}

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (dlopen(library().c_str(), RTLD_NOW) == nullptr) GTEST_SKIP() << "no driver: " << dlerror();
    try {
      driver = open_driver(0, library());
    } catch (const DriverError& error) {
      if (error.status != kNoDevice) throw;
      GTEST_SKIP() << error.what();
    }
    granule = driver->granularity();
    staging = static_cast<char*>(driver->pin(kStaging));
    end = driver->make_event();
  }
  void TearDown() override {
    if (!driver) return;
    driver->destroy_event(end);
    driver->unpin(staging);
  }

  // Why no kernel can be launched; "": one can.
  static std::string without_kernels() {
    return TouchKernel::launches(library()) ? "" : library() + " launches no kernels";
  }

  // What a kernel would do: copies between a tensor's pages, as many as tell where its granules
  // are, and memory of the host. With `kernel` it touches each of them, too: after the copy in,
  // where its word takes the place of the page's first, and before the copy out.
  std::vector<std::uint64_t> pages(std::uint64_t bytes) const {
    std::vector<std::uint64_t> offsets;
    for (std::uint64_t at = 0; at < bytes; at += granule) {
      offsets.push_back(at);
      offsets.push_back(std::min(at + granule, bytes) - kPage);
    }
    return offsets;
  }
  char* page() {
    staged += kPage;
    if (staged > kStaging) throw Error("the test needs more memory of the host");
    return staging + staged - kPage;
  }
  void write(std::uintptr_t address, std::uint64_t bytes, std::uint64_t value, Stream stream) {
    for (const auto offset : pages(bytes)) {
      char* from = page();
      for (std::uint64_t i = 0; i < kPage / 8; ++i) std::memcpy(from + 8 * i, &value, sizeof value);
      driver->copy(reinterpret_cast<void*>(address + offset), from, kPage, stream);
      if (kernel) kernel->launch(address + offset, 1, true, stream);
    }
  }
  void read(std::uintptr_t address, std::uint64_t bytes, std::uint64_t value, Stream stream) {
    for (const auto offset : pages(bytes)) {
      char* to = page();
      if (kernel) kernel->launch(address + offset, 1, false, stream);
      driver->copy(to, reinterpret_cast<void*>(address + offset), kPage, stream);
      expected.push_back({to, value});
    }
  }
  void finish(Stream stream) {
    driver->record(end, stream);
    driver->synchronize(end);
    compare();
  }
  // What has been copied out, by when the device is waited for.
  void compare() {
    for (const auto& [at, value] : expected)
      for (std::uint64_t i = 0; i < kPage / 8; ++i) {
        std::uint64_t found;
        std::memcpy(&found, at + 8 * i, sizeof found);
        ASSERT_EQ(found, kernel && i == 0 ? TouchKernel::kLast : value);
      }
    expected.clear();
    staged = 0;
  }

  void train(unsigned seed, const HostOptions& host) { train(*driver, seed, host); }
  void train(Driver& over, unsigned seed, const HostOptions& host) {
    GpuEngine engine(over, {.arena_bytes = 256 * granule, .granule_bytes = granule, .host = host});
    const Stream stream = driver->make_stream();
    engine.compute_on(stream);
    engine.set_budget((9 + seed % 4) * granule);
    struct Tensor {
      std::uintptr_t address;
      std::uint64_t bytes, value;
      bool wanted = true;
    };
    std::vector<Tensor> live;
    std::mt19937 random(seed);
    std::uint64_t next = engine.arena();
    const auto want = [&](Tensor& t, bool wanted) {
      if (wanted && !t.wanted) engine.promote(t.address, t.bytes);
      if (!wanted && t.wanted && random() % 3 == 0)
        engine.sink(t.address, t.bytes);
      else if (!wanted && t.wanted)
        engine.demote(t.address, t.bytes);
      t.wanted = wanted;
    };
    for (int op = 0; op < 200; ++op) {
      engine.tick();
      if (live.size() < 12 && random() % 3 != 0 && next < engine.arena() + 250 * granule) {
        live.push_back({next, (1 + random() % 6) * granule / 2, random()});
        const auto& t = live.back();
        next += t.bytes;
        ASSERT_TRUE(engine.on_allocate(t.address, t.bytes));
        write(t.address, t.bytes, t.value, stream);
      } else if (!live.empty()) {
        auto& t = live[random() % live.size()];
        want(t, true);
        engine.await(t.address, t.bytes);
        read(t.address, t.bytes, t.value, stream);
        write(t.address, t.bytes, ++t.value, stream);
      }
      if (live.empty()) continue;
      const auto t = live.begin() + static_cast<std::ptrdiff_t>(random() % live.size());
      if (const auto chance = random() % 4; chance < 2) {
        want(*t, chance == 1);
      } else if (chance == 2) {
        engine.on_free(t->address, t->bytes, t->wanted);
        live.erase(t);
      }
    }
    ASSERT_NO_FATAL_FAILURE(finish(stream)) << "seed " << seed;
    EXPECT_LE(engine.counters().peak_bytes, (9 + seed % 4) * granule);
    EXPECT_GT(engine.counters().demoted_bytes, 0u);
    if (host.bytes != 0) {
      EXPECT_GT(engine.counters().reading.bytes, 0u);
    }
  }

  HostOptions over_a_file() const {
    return {.bytes = HostStore::kLeast * granule, .directory = "/var/tmp", .allow_memory = true};
  }

  static constexpr std::uint64_t kStaging = 64u << 20;
  std::unique_ptr<Driver> driver;
  std::uint64_t granule = 0, staged = 0;
  char* staging = nullptr;
  Event end = nullptr;
  std::unique_ptr<TouchKernel> kernel;
  std::vector<std::pair<const char*, std::uint64_t>> expected;
};

TEST_F(DeviceTest, TrainingsComputeTheSameInAFewChunks) {
  for (unsigned seed = 0; seed < 8; ++seed) train(seed, {});
}

TEST_F(DeviceTest, KernelsComputeTheSameInAFewChunks) {
  if (const auto reason = without_kernels(); !reason.empty()) GTEST_SKIP() << reason;
  kernel = std::make_unique<TouchKernel>(library());
  for (unsigned seed = 0; seed < 8; ++seed) train(seed, {});
}

// By kernels as well, where they can be launched: these bring what is elsewhere, copies may not.
TEST_F(DeviceTest, TrainingsComputeTheSameInManagedMemory) {
  try {
    driver->unmanage(driver->manage(granule));
  } catch (const DriverError&) {
    throw;
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const auto managed = make_managed_driver(open_driver(0, library()));
  for (unsigned seed = 0; seed < 8; ++seed) train(*managed, seed, {});
  if (!without_kernels().empty()) return;
  kernel = std::make_unique<TouchKernel>(library());
  for (unsigned seed = 0; seed < 8; ++seed) train(*managed, seed, {});
}

TEST_F(DeviceTest, TrainingsComputeTheSameOverAFile) {
  for (unsigned seed = 0; seed < 8; ++seed) train(seed, over_a_file());
}

TEST_F(DeviceTest, TrainingsComputeTheSameOverTheDevicesOwnFile) {
  auto host = over_a_file();
  host.cufile = "libcufile.so.0";
  const SlowFile file({.directory = host.directory,
                       .frame_bytes = granule,
                       .allow_memory = host.allow_memory,
                       .named = true});
  try {
    driver->open_files(file.files(), host.cufile);
  } catch (const Error& error) {
    // The library, its driver, or what these say of the platform, file system, device and kernel
    // module (CU_FILE_PLATFORM_NOT_SUPPORTED to CU_FILE_NVFS_DRIVER_ERROR), or that the file could
    // not be registered (CU_FILE_HANDLE_NOT_REGISTERED, as an H200 without that module answers).
    // All else has to work.
    const std::string told = error.what();
    if (!told.starts_with("cuFileHandleRegister") ||
        std::regex_search(told, std::regex("cuFile's error 50(07|08|09|10|27)")))
      GTEST_SKIP() << told;
    throw;
  }
  for (unsigned seed = 0; seed < 8; ++seed) train(seed, host);
}

// Every page once for each launch that finds it armed; what the driver asks for ahead is counted,
// too, so no more than so much is certain.
TEST_F(DeviceTest, ThePatchedKernelCountsWhatTheDeviceOpens) {
  if (const auto reason = without_kernels(); !reason.empty()) GTEST_SKIP() << reason;
  if (driver->pageable() == Pageable::no)
    GTEST_SKIP() << "the device does not use pageable memory (neither HMM nor ATS)";
  if (const int code = KernelSource::probe(); code != 0)
    GTEST_SKIP() << "no patched kernel (/dev/sentinel): " << std::strerror(-code);
  constexpr std::uint64_t kPages = 4096;
  PageableEngine engine(*driver, 64u << 20);
  engine.on_allocate(engine.arena(), kPages * kPage);
  KernelSource source({.window_pages = 2048});
  const ArmRange range{engine.arena(), kPages * kPage, 1, 7};
  ASSERT_EQ(source.arm({&range, 1}), 0);
  TouchKernel touch(library());
  const auto stream = driver->make_stream();
  engine.compute_on(stream);
  for (const bool writes : {true, false, true}) {
    touch.launch(engine.arena(), kPages, writes, stream);
    engine.finish();
    std::vector<PageCount> counts;
    ASSERT_EQ(source.drain(counts), 0);
    ASSERT_EQ(counts.size(), 1u);
    EXPECT_EQ(counts[0].tag, 7u);
    EXPECT_GE(counts[0].reads + counts[0].writes, kPages / 2);
    EXPECT_EQ(counts[0].writes > 0, writes);
  }
  driver->destroy_stream(stream);
}

// Of what it did not bring along with others; each launch finds all of them on the host.
TEST_F(DeviceTest, CuptiTellsThePageFaultsOfManagedMemory) {
  if (const auto reason = without_kernels(); !reason.empty()) GTEST_SKIP() << reason;
  if (!driver->faults()) GTEST_SKIP() << "the device does not bring managed memory page by page";
  std::unique_ptr<PageFaults> faults;
  try {
    faults = open_cupti("libcupti.so", 0);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  constexpr std::uint64_t kPages = 4096;
  const auto managed = make_managed_driver(open_driver(0, library()));
  const auto arena = managed->reserve(kPages * kPage);
  {
    FaultSource source(*managed, std::move(faults), arena, kPages * kPage);
    const ArmRange range{arena, kPages * kPage, 1, 7};
    ASSERT_EQ(source.arm({&range, 1}), 0);
    TouchKernel touch(library());
    const auto stream = managed->make_stream();
    for (const bool writes : {true, false, true}) {
      touch.launch(arena, kPages, writes, stream);
      managed->record(end, stream);
      managed->synchronize(end);
      std::vector<PageCount> counts;
      ASSERT_EQ(source.drain(counts), 0);
      ASSERT_EQ(counts.size(), 1u);
      EXPECT_EQ(counts[0].tag, 7u);
      EXPECT_GE(counts[0].reads + counts[0].writes, kPages * kPage / (2u << 20));
      EXPECT_LE(counts[0].reads + counts[0].writes, kPages);
      EXPECT_EQ(counts[0].writes > 0, writes);
    }
    managed->destroy_stream(stream);
  }
  managed->unreserve(arena, kPages * kPage);
}

// And its addresses take the same memory again, in another order.
TEST_F(DeviceTest, NeighboursAreUnmappedByOneCall) {
  const std::uint64_t count = std::max<std::uint64_t>(2, neighbours(granule));
  const auto range = driver->reserve(count * granule);
  const Stream stream = driver->make_stream();
  std::vector<Chunk> chunks;
  while (chunks.size() < count) chunks.push_back(driver->create(granule).value());
  const auto half = chunks.begin() + count / 2;
  for (std::uint64_t round = 0; round < 3; ++round) {
    driver->map_all(range, granule, {chunks.begin(), half});
    driver->map_all(range + count / 2 * granule, granule, {half, chunks.end()});
    if (round > 0) read(range + count / 2 * granule, granule, round, stream);
    write(range, granule, round + 1, stream);
    read(range, granule, round + 1, stream);
    ASSERT_NO_FATAL_FAILURE(finish(stream));
    driver->unmap(range, count * granule);
    std::rotate(chunks.begin(), half, chunks.end());
  }
  for (const Chunk chunk : chunks) driver->destroy(chunk);
  driver->destroy_stream(stream);
  driver->unreserve(range, count * granule);
}

// All that the device was given has ended when that has been waited for: the copies out, too.
TEST_F(DeviceTest, MemoryAsTheDriverGivesItHoldsWhatIsWritten) {
  if (without_kernels().empty()) kernel = std::make_unique<TouchKernel>(library());
  const Stream stream = driver->make_stream();
  const std::uint64_t bytes = 5 * granule / 2;
  for (std::uint64_t round = 0; round < 3; ++round) {
    const auto first = driver->allocate(bytes), second = driver->allocate(bytes);
    ASSERT_TRUE(first && second);
    write(*first, bytes, 10 + round, stream);
    write(*second, bytes, 20 + round, stream);
    read(*first, bytes, 10 + round, stream);
    read(*second, bytes, 20 + round, stream);
    driver->synchronize_all();
    driver->free(*first);
    ASSERT_NO_FATAL_FAILURE(compare());
    driver->free(*second);
  }
  driver->destroy_stream(stream);
}

TEST_F(DeviceTest, MemoryThatTheDeviceHasNotIsRefused) {
  EXPECT_EQ(driver->allocate(1ull << 46), std::nullopt);
}

TEST_F(DeviceTest, WhatTheDriverRefusesHasItsName) {
  try {
    driver->unmap(1, granule);
    FAIL() << "unmapping nothing was accepted";
  } catch (const DriverError& error) {
    EXPECT_THAT(error.what(), ::testing::StartsWith("cuMemUnmap: CUDA_ERROR_"));
  }
}

}  // namespace
}  // namespace sentinel::gpu
