// The host's memory over a file, beneath an engine of pools.
#include "engine/gpu/store/host_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "unit/engine/gpu/gpu_engine_fixture.h"

namespace sentinel::gpu {
namespace {

using ::testing::IsEmpty;

class HostStoreTest : public GpuEngineFixture {
 protected:
  // Some granules of the host's memory above a file.
  static HostOptions little_memory(std::uint64_t granules = HostStore::kLeast) {
    return {.bytes = granules * kUnit, .directory = ::testing::TempDir(), .allow_memory = true};
  }
};

// Of the device's own transfers as well (cuFile).
class Trainings : public HostStoreTest, public testing::WithParamInterface<bool> {};

TEST_P(Trainings, ComputeTheSame) {
  std::uint64_t written = 0, read = 0, directly = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    auto host = little_memory(HostStore::kLeast + seed % 3);
    if (GetParam()) host.cufile = "a library";
    host.io = seed % 2 == 0 ? IoBackend::automatic : IoBackend::threads;
    host.depth = 1 + seed % 8;
    make(seed, 1000, host);
    engine->set_budget((9 + seed % 4) * kUnit);
    RandomTraining training(seed, *gpu, *engine, 24);
    for (int op = 0; op < 150; ++op) training.op();
    gpu->finish();
    ASSERT_EQ(training.wrong(), 0u) << "seed " << seed;
    ASSERT_THAT(gpu->complaints(), IsEmpty()) << "seed " << seed;
    ASSERT_FALSE(gpu->was_waited_for_by(std::this_thread::get_id()));
    written += engine->counters().writing.bytes;
    read += engine->counters().reading.bytes;
    directly += std::min(gpu->written_to_files(), gpu->filled_from_files());
  }
  EXPECT_GT(written, 1000 * kUnit);
  EXPECT_GT(read, 1000 * kUnit);
  if (GetParam())
    EXPECT_GT(directly, 100 * kUnit);  // how many pass the host's memory first is chance
  else
    EXPECT_EQ(directly, 0u);
}

INSTANTIATE_TEST_SUITE_P(PastTheHostsMemoryOrThroughIt, Trainings, testing::Bool());

class Sinking : public HostStoreTest, public testing::WithParamInterface<bool> {};

TEST_P(Sinking, ComesBackFromTheFile) {
  constexpr std::uint64_t kBlocks = 10;
  auto host = little_memory(64);
  if (GetParam()) host.cufile = "a library";
  make(9, 1000, host);
  engine->set_budget(3 * kUnit);
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    engine->tick();
    ASSERT_TRUE(engine->on_allocate(at(block), kUnit));
    fill(block, 1, 100 + block, stream);
    engine->sink(at(block), kUnit);
  }
  while (engine->counters().writing.bytes < kBlocks * kUnit)  // there is memory for all of them
    std::this_thread::yield();
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    engine->tick();
    engine->promote(at(block), kUnit);
    engine->await(at(block), kUnit);
    expect(block, 1, 100 + block, stream);
    engine->on_free(at(block), kUnit, true);
  }
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(engine->counters().reading.bytes, kBlocks * kUnit);
  const auto direct = GetParam() ? kBlocks * kUnit : 0;
  EXPECT_EQ(gpu->written_to_files(), direct);
  EXPECT_EQ(gpu->filled_from_files(), direct);
}

INSTANTIATE_TEST_SUITE_P(PastTheHostsMemoryOrThroughIt, Sinking, testing::Bool());

class DirectTest : public HostStoreTest {
 protected:
  void make_direct(unsigned seed, std::uint64_t granules = 64) {
    auto host = little_memory(granules);
    host.cufile = "a library";
    make(seed, 1000, host);
  }
  static bool soon(const std::function<bool()>& holds) {
    for (int ms = 0; ms < 5000 && !holds(); ++ms)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return holds();
  }
  // Blocks that lie in the file, each filled with 100 and its number.
  void sink_blocks(std::uint64_t blocks) {
    for (std::uint64_t block = 0; block < blocks; ++block) {
      engine->tick();
      ASSERT_TRUE(engine->on_allocate(at(block), kUnit));
      fill(block, 1, 100 + block, stream);
      engine->sink(at(block), kUnit);
    }
    ASSERT_TRUE(soon([&] { return engine->counters().writing.bytes == blocks * kUnit; }));
    engine->settle();
  }
};

TEST_F(DirectTest, WhatIsSentAwayWhileItComesLeaves) {
  make_direct(13);
  engine->set_budget(4 * kUnit);
  sink_blocks(1);
  gpu->hold_files(true);
  engine->tick();
  engine->promote(at(0), kUnit);
  ASSERT_TRUE(soon([&] { return gpu->files_begun() == 2; }));
  engine->demote(at(0), kUnit);
  engine->tick();
  gpu->hold_files(false);
  EXPECT_TRUE(soon([&] { return engine->counters().demoted_bytes == 2 * kUnit; }));
}

// Its exit handlers come next. What is asked for nevertheless passes the host's memory.
TEST_F(DirectTest, AtTheProgramsEndTheLibraryIsAskedNoMore) {
  constexpr std::uint64_t kBlocks = 6;
  make_direct(14);
  engine->set_budget(3 * kUnit);
  sink_blocks(kBlocks);
  engine->tick();
  gpu->hold_files(true);
  engine->promote(at(0), kUnit);
  ASSERT_TRUE(soon([&] { return gpu->files_begun() == kBlocks + 1; }));
  std::atomic<bool> ended = false;
  std::thread end([&] {
    engine->program_ends();
    ended = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(ended);
  gpu->hold_files(false);
  end.join();
  gpu->end_files();
  for (int round = 0; round < 2; ++round)
    for (std::uint64_t block = 0; block < kBlocks; ++block) {
      engine->tick();
      if (block > 0 || round > 0) engine->promote(at(block), kUnit);
      engine->await(at(block), kUnit);
      expect(block, 1, 100 + block, stream);
      engine->sink(at(block), kUnit);
    }
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(gpu->filled_from_files(), kUnit);
  EXPECT_THAT(gpu->complaints(), IsEmpty());
}

// And another thread waits for what it would have brought.
TEST_F(DirectTest, NobodyWaitsForALibraryThatWentFirst) {
  make_direct(17);
  engine->set_budget(3 * kUnit);
  sink_blocks(2);
  engine->tick();
  gpu->hold_files(true);
  std::thread op([&] {
    engine->compute_on(stream);
    engine->await(at(0), kUnit);
  });
  ASSERT_TRUE(soon([&] { return gpu->files_begun() == 3; }));
  std::thread end([&] { engine->program_ends(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto begin = std::chrono::steady_clock::now();
  gpu->close_files();
  gpu->hold_files(false);
  end.join();
  op.join();
  engine->compute_on(stream);
  engine->await(at(1), kUnit);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(DirectTest, WhatAnOpAwaitsComesAtOnce) {
  constexpr std::uint64_t kBlocks = 6;
  make_direct(15);
  engine->set_budget(kBlocks * kUnit);
  sink_blocks(kBlocks);
  engine->tick();
  gpu->hold_files(true);
  std::thread op([&] {
    engine->compute_on(stream);
    engine->await(at(0), kBlocks * kUnit);
  });
  EXPECT_TRUE(soon([&] { return gpu->files_begun() == 2 * kBlocks; }));
  gpu->hold_files(false);
  op.join();
  for (std::uint64_t block = 0; block < kBlocks; ++block) expect(block, 1, 100 + block, stream);
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(engine->counters().demand_faults, kBlocks);
}

// Of the writes that wait for others (four of eight transfers) none has to be made.
TEST_F(DirectTest, WhatIsNotWrittenYetIsTakenBack) {
  constexpr std::uint64_t kBlocks = 8;
  make_direct(16);
  engine->set_budget(kBlocks * kUnit);
  gpu->hold_files(true);
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    engine->tick();
    ASSERT_TRUE(engine->on_allocate(at(block), kUnit));
    fill(block, 1, 100 + block, stream);
    engine->sink(at(block), kUnit);
  }
  ASSERT_TRUE(soon([&] { return gpu->files_begun() == kBlocks / 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the rest waits in the queue
  engine->tick();
  engine->promote(at(kBlocks / 2), kBlocks / 2 * kUnit);
  gpu->hold_files(false);
  engine->await(at(kBlocks / 2), kBlocks / 2 * kUnit);
  for (std::uint64_t block = kBlocks / 2; block < kBlocks; ++block)
    expect(block, 1, 100 + block, stream);
  engine->settle();
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(gpu->written_to_files(), kBlocks / 2 * kUnit);
}

// Copies in keep their places until they are over; nothing leaves that would look for one.
TEST_F(HostStoreTest, WhatComesInGivesItsPlaceToWhatIsRead) {
  constexpr std::uint64_t kBlocks = HostStore::kLeast + 8;
  make(12, 1000, little_memory());
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    engine->tick();
    ASSERT_TRUE(engine->on_allocate(at(block), kUnit));
    fill(block, 1, 100 + block, stream);
    engine->demote(at(block), kUnit);
  }
  engine->tick();
  engine->settle();
  engine->await(at(0), kBlocks * kUnit);
  for (std::uint64_t block = 0; block < kBlocks; ++block) expect(block, 1, 100 + block, stream);
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
}

TEST_F(HostStoreTest, TooLittleOfTheHostIsRefused) {
  EXPECT_THROW(make(10, 1000, little_memory(HostStore::kLeast - 1)), Error);
}

class HostStoreDeathTest : public HostStoreTest {
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }  // with its helper
};

// Injected into the file's transfers: what cannot be written or read back ends training.
TEST_F(HostStoreDeathTest, AFileThatFailsEndsTheProcess) {
  for (const char* fault : {"write:2:ENOSPC", "read:1:short", "read:2:EIO"})
    for (const char* cufile : {"", "a library"})
      EXPECT_EXIT(
          {
            auto host = little_memory(64);
            host.inject = fault;
            host.cufile = cufile;
            make(11, 1000, host);
            engine->set_budget(2 * kUnit);
            for (std::uint64_t block = 0; block < 4; ++block) {
              engine->tick();
              if (!engine->on_allocate(at(block), kUnit)) std::exit(1);
              engine->sink(at(block), kUnit);
            }
            while (engine->counters().writing.bytes < 4 * kUnit) std::this_thread::yield();
            for (std::uint64_t block = 0; block < 4; ++block) {
              engine->tick();
              engine->promote(at(block), kUnit);
              engine->await(at(block), kUnit);
              engine->demote(at(block), kUnit);
            }
            std::exit(1);
          },
          ::testing::ExitedWithCode(125),
          "training stopped: (cuFile(Write|Read): )?could not (write|read).*No wrong number")
          << fault << cufile;
}

// By another process, or by the drive: one bit in each block, which lies in none of the bytes that
// are sampled, or each block in the place of the one before it.
enum class Change { nothing, bit, block };

int store_file() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
    const int number = std::stoi(entry.path().filename());
    struct stat found {};
    if (target.starts_with(::testing::TempDir()) && target.ends_with("(deleted)") &&
        fstat(number, &found) == 0 && found.st_size > 0)
      return number;
  }
  return -1;
}

void change(int file, Change change) {
  struct stat found {};
  fstat(file, &found);
  std::vector<char> bytes(static_cast<std::size_t>(found.st_size));
  Descriptor other(open(fmt::format("/proc/self/fd/{}", file).c_str(), O_RDWR));
  if (pread(other.get(), bytes.data(), bytes.size(), 0) != found.st_size) std::exit(2);
  if (change == Change::block) std::ranges::rotate(bytes, bytes.begin() + kUnit);
  if (change == Change::bit)
    for (std::size_t at = kUnit / 2; at < bytes.size(); at += kUnit) bytes[at] ^= 16;
  if (pwrite(other.get(), bytes.data(), bytes.size(), 0) != found.st_size) std::exit(2);
}

TEST_F(HostStoreDeathTest, OtherBytesThanWereWrittenEndTheProcess) {
  constexpr std::uint64_t kBlocks = 4;
  const auto train = [&](ChecksumLevel level, Change how) {
    auto host = little_memory(64);
    host.checksums = level;
    make(11, 1000, host);
    engine->set_budget(2 * kUnit);
    for (std::uint64_t block = 0; block < kBlocks; ++block) {
      engine->tick();
      if (!engine->on_allocate(at(block), kUnit)) std::exit(2);
      fill(block, 1, 100 + block, stream);
      engine->sink(at(block), kUnit);
    }
    while (engine->counters().writing.bytes < kBlocks * kUnit) std::this_thread::yield();
    engine->settle();
    change(store_file(), how);
    for (std::uint64_t block = 0; block < kBlocks; ++block) {
      engine->tick();
      engine->promote(at(block), kUnit);
      engine->await(at(block), kUnit);
      expect(block, 1, 100 + block, stream);
      engine->demote(at(block), kUnit);
    }
    gpu->finish();
    std::exit(wrong == 0 ? 0 : 1);
  };
  const struct {
    ChecksumLevel level;
    Change change;
    int status;
  } cases[] = {{ChecksumLevel::full, Change::nothing, 0},
               {ChecksumLevel::full, Change::bit, 125},
               {ChecksumLevel::full, Change::block, 125},
               {ChecksumLevel::sampled, Change::block, 125},
               {ChecksumLevel::off, Change::block, 1}};  // that these can fail
  for (const auto& one : cases)
    EXPECT_EXIT(train(one.level, one.change), ::testing::ExitedWithCode(one.status),
                one.status != 125 ? ""
                                  : "could not read back.*gave back other bytes than were "
                                    "written.*No wrong number")
        << static_cast<int>(one.level) << ' ' << static_cast<int>(one.change);
}

}  // namespace
}  // namespace sentinel::gpu
