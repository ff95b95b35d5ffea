// How an engine of pools ends: with the program, whose libraries' exit handlers come next, or where
// it cannot go on.
#include <atomic>
#include <chrono>
#include <thread>

#include "unit/engine/gpu/gpu_engine_fixture.h"

namespace sentinel::gpu {
namespace {

class ProgramsEnd : public GpuEngineFixture {
 protected:
  const HostOptions kLittleMemory = {
      .bytes = HostStore::kLeast * kUnit, .directory = ::testing::TempDir(), .allow_memory = true};

  void begin_block() {
    engine->tick();
    ASSERT_TRUE(engine->on_allocate(at(0), kUnit));
    fill(0, 1, 100, stream);
  }
  // The helper is about to be in a call that is held.
  void expect_that_it_is_waited_for() {
    while (!gpu->is_waited_for()) std::this_thread::yield();
    std::atomic<bool> ended = false;
    std::thread end([&] {
      engine->program_ends();
      EXPECT_FALSE(gpu->is_waited_for());
      ended = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(ended);
    gpu->hold(false);
    end.join();
    engine->tick();
    engine->await(at(0), kUnit);  // what runs on nevertheless may go on
    expect(0, 1, 100, stream);
    gpu->finish();
    EXPECT_EQ(wrong, 0u);
  }
};

TEST_F(ProgramsEnd, NobodyIsInACallThatADepartureWaitsFor) {
  make(8);
  begin_block();
  gpu->hold(true);
  engine->demote(at(0), kUnit);
  expect_that_it_is_waited_for();
}

// Where the host's memory is limited the helper waits for copies in, too.
TEST_F(ProgramsEnd, NobodyIsInACallThatAnArrivalWaitsFor) {
  make(10, 1000, kLittleMemory);
  begin_block();
  engine->demote(at(0), kUnit);
  engine->settle();
  gpu->hold(true);
  engine->promote(at(0), kUnit);
  expect_that_it_is_waited_for();
}

TEST_F(ProgramsEnd, NothingBeginsThatNobodyWaitsFor) {
  make(11, 1000, kLittleMemory);
  engine->set_budget(2 * kUnit);
  for (std::uint64_t block = 0; block < 2; ++block) {
    engine->tick();
    ASSERT_TRUE(engine->on_allocate(at(block), kUnit));
    fill(block, 1, 100 + block, stream);
  }
  engine->sink(at(0), kUnit);
  while (engine->counters().writing.bytes < kUnit) std::this_thread::yield();
  engine->program_ends();
  engine->tick();
  engine->promote(at(0), kUnit);
  engine->demote(at(1), kUnit);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(engine->counters().reading.bytes, 0u);
  EXPECT_EQ(engine->counters().demoted_bytes, kUnit);
  for (std::uint64_t block = 0; block < 2; ++block) {  // what runs on nevertheless may
    engine->tick();
    engine->await(at(block), kUnit);
    expect(block, 1, 100 + block, stream);
  }
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(engine->counters().reading.bytes, kUnit);
}

class GpuEngineDeathTest : public GpuEngineFixture {
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }  // with its helper
};

TEST_F(GpuEngineDeathTest, ARefusedCallEndsTheProcessWithItsName) {
  make(5);
  gpu->refuse("cuMemMap");
  EXPECT_EXIT(engine->on_allocate(at(0), kUnit), ::testing::ExitedWithCode(125),
              "training stopped: cuMemMap: CUDA_ERROR_OUT_OF_MEMORY.*No wrong number");
  gpu->refuse("");
}

TEST_F(GpuEngineDeathTest, AHostWithoutMemorySaysWhatToDo) {
  make(13);
  engine->tick();
  ASSERT_TRUE(engine->on_allocate(at(0), kUnit));
  engine->tick();
  gpu->refuse("cuMemHostAlloc");
  EXPECT_EXIT(engine->demote(at(0), kUnit), ::testing::ExitedWithCode(125),
              "cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY.*limit it with --host-memory");
  gpu->refuse("");
}

TEST_F(GpuEngineDeathTest, AnOpThatUsesMoreThanTheBudgetEndsTheProcess) {
  make(6);
  engine->set_budget(2 * kUnit);
  for (std::uint64_t block = 0; block < 3; ++block) {
    engine->tick();
    ASSERT_TRUE(engine->on_allocate(at(block), kUnit));
    engine->demote(at(block), kUnit);
  }
  engine->tick();
  EXPECT_EXIT(engine->await(at(0), 3 * kUnit), ::testing::ExitedWithCode(125),
              "an op uses more than the 8.00 KiB of the device's memory");
}

}  // namespace
}  // namespace sentinel::gpu
