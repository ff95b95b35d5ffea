// The host's memory over a file, beneath an engine of pools.
#include "execute/gpu/host_store.h"

#include <thread>

#include "pool_engine_fixture.h"

namespace sentinel::gpu {
namespace {

using ::testing::IsEmpty;

class HostStoreTest : public PoolEngineFixture {
 protected:
  // Some granules of the host's memory above a file.
  static HostOptions little_memory(std::uint64_t granules = HostStore::kLeast) {
    return {.bytes = granules * kUnit, .directory = ::testing::TempDir(), .allow_memory = true};
  }
};

TEST_F(HostStoreTest, RandomTrainingsComputeTheSame) {
  std::uint64_t written = 0, read = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    auto host = little_memory(HostStore::kLeast + seed % 3);
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
  }
  EXPECT_GT(written, 1000 * kUnit);
  EXPECT_GT(read, 1000 * kUnit);
}

TEST_F(HostStoreTest, WhatSinksComesBackFromTheFile) {
  constexpr std::uint64_t kBlocks = 10;
  make(9, 1000, little_memory(64));
  engine->set_budget(3 * kUnit);
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    engine->tick();
    ASSERT_TRUE(engine->occupy(at(block), kUnit));
    fill(block, 1, 100 + block, stream);
    engine->demote(at(block), kUnit);
    engine->sink(at(block), kUnit);
  }
  while (engine->counters().writing.bytes < kBlocks * kUnit)  // there is memory for all of them
    std::this_thread::yield();
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    engine->tick();
    engine->promote(at(block), kUnit);
    engine->await(at(block), kUnit);
    expect(block, 1, 100 + block, stream);
    engine->vacate(at(block), kUnit, true);
  }
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(engine->counters().reading.bytes, kBlocks * kUnit);
}

// Copies in keep their places until they are over; nothing leaves that would look for one.
TEST_F(HostStoreTest, WhatComesInGivesItsPlaceToWhatIsRead) {
  constexpr std::uint64_t kBlocks = HostStore::kLeast + 8;
  make(12, 1000, little_memory());
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    engine->tick();
    ASSERT_TRUE(engine->occupy(at(block), kUnit));
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
    EXPECT_EXIT(
        {
          auto host = little_memory(64);
          host.inject = fault;
          make(11, 1000, host);
          engine->set_budget(2 * kUnit);
          for (std::uint64_t block = 0; block < 4; ++block) {
            engine->tick();
            if (!engine->occupy(at(block), kUnit)) std::exit(1);
            engine->demote(at(block), kUnit);
            engine->sink(at(block), kUnit);
          }
          while (engine->counters().writing.bytes < 4 * kUnit) std::this_thread::yield();
          for (std::uint64_t block = 0; block < 4; ++block) {
            engine->tick();
            engine->await(at(block), kUnit);
            engine->demote(at(block), kUnit);
          }
          std::exit(1);
        },
        ::testing::ExitedWithCode(125), "training stopped: could not (write|read).*No wrong number")
        << fault;
}

}  // namespace
}  // namespace sentinel::gpu
