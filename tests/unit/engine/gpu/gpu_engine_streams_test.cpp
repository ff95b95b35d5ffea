// Streams that come and go, of one device and of two, and the threads that compute on them.
#include "engine/gpu/gpu_engine.h"
#include "unit/engine/gpu/gpu_engine_fixture.h"
#include "unit/engine/gpu/second_thread.h"

namespace sentinel::gpu {
namespace {

using ::testing::IsEmpty;

using GpuEngineTest = GpuEngineFixture;

TEST_F(GpuEngineTest, AStreamMayEnd) {
  make(8);
  const Stream other = gpu->make_stream();
  engine->set_budget(2 * kUnit);
  engine->tick();
  engine->compute_on(other);
  ASSERT_TRUE(engine->on_allocate(at(0), kUnit));
  fill(0, 1, 5, other);
  engine->forget(other);
  gpu->finish();
  gpu->destroy_stream(other);
  engine->compute_on(stream);
  for (std::uint64_t block = 1; block < 4; ++block) {
    engine->tick();
    ASSERT_TRUE(engine->on_allocate(at(block), kUnit));
  }
  engine->tick();
  engine->await(at(0), kUnit);
  expect(0, 1, 5, stream);
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
}

// Another op may end meanwhile, whose plan sends away what both use.
TEST_F(GpuEngineTest, WhatIsAboutToBeLaunchedDoesNotLeaveBeforeTheNextOp) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    make(seed);
    engine->tick();
    engine->launching(true);
    ASSERT_TRUE(engine->on_allocate(at(0), kUnit));
    engine->demote(at(0), kUnit);
    engine->settle();
    fill(0, 1, 5, stream);
    gpu->finish();
    ASSERT_THAT(gpu->complaints(), IsEmpty());
    EXPECT_EQ(engine->counters().demoted_bytes, 0u);
    engine->launching(false);
    engine->tick();
    ASSERT_TRUE(engine->on_allocate(at(1), kUnit));
    for (int waited = 0; engine->counters().demoted_bytes == 0 && waited < 5000; ++waited)
      usleep(1000);
    EXPECT_EQ(engine->counters().demoted_bytes, kUnit);
  }
}

TEST_F(GpuEngineTest, AStreamThatEndedIsNoOtherThreadsAnyMore) {
  make(8);
  rig::SecondThread second;
  const Stream other = gpu->make_stream();
  second.run([&] {
    engine->compute_on(other);
    engine->tick();
    ASSERT_TRUE(engine->on_allocate(at(0), kUnit));
    fill(0, 1, 5, other);
  });
  engine->forget(other);
  gpu->finish();
  gpu->destroy_stream(other);
  second.run([&] {
    engine->tick();
    engine->await(at(0), kUnit);
    ASSERT_TRUE(engine->on_allocate(at(1), kUnit));
    engine->finish();
    expect(0, 1, 5, nullptr);
  });
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
}

// A driver gives the next stream the handle of one that was destroyed.
TEST(ThreadStreams, WhatWasForgottenIsNotWhatIsMadeNext) {
  const auto handle = reinterpret_cast<Stream>(16);
  ThreadStreams streams;
  rig::SecondThread second;
  const auto there = [&] {
    Stream stream = nullptr;
    second.run([&] { stream = streams.here(); });
    return stream;
  };
  second.run([&] { streams.set(handle); });
  EXPECT_EQ(there(), handle);
  streams.forget(handle);
  streams.set(handle);
  EXPECT_EQ(there(), nullptr);
  EXPECT_EQ(streams.here(), handle);
  second.run([&] { streams.set(handle); });
  EXPECT_EQ(there(), handle);
}

TEST_F(GpuEngineTest, TwoDevicesDoNotKnowEachOthersStreams) {
  make(9);
  FakeGpu second(9, 100);
  GpuEngine engine2(second, {.arena_bytes = 16 * kUnit, .granule_bytes = kUnit});
  for (int i = 0; i < 5; ++i) second.make_stream();  // names that the first device does not have
  engine2.compute_on(second.make_stream());
  engine2.tick();
  ASSERT_TRUE(engine2.on_allocate(engine2.arena(), kUnit));
  engine->tick();
  ASSERT_TRUE(engine->on_allocate(at(0), kUnit));
  engine->demote(at(0), kUnit);
  engine2.demote(engine2.arena(), kUnit);
  engine->settle();
  engine2.settle();
  EXPECT_THAT(second.complaints(), IsEmpty());
}

TEST(CudaDriver, IsLoadedWhereThereIsOne) {
  try {
    EXPECT_GE(open_driver(0)->granularity(), 4096u);
  } catch (const DriverError& error) {
    GTEST_SKIP() << error.what();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("install NVIDIA's"));
  }
}

}  // namespace
}  // namespace sentinel::gpu
