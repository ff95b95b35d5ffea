// A device's queues are short: a stream takes so many commands, and whoever gives it one more waits
// in the driver. The engine queues under its lock, so it must never be the one who finds a queue
// full.
#include "engine/gpu/managed_driver.h"
#include "unit/engine/gpu/gpu_engine_fixture.h"

namespace sentinel::gpu {
namespace {

using ::testing::IsEmpty;

class GpuEngineQueue : public ::testing::Test {
 protected:
  static constexpr std::size_t kQueue = 1024;
  static constexpr std::uint64_t kBlocks = 3000;

  GpuEngineQueue() {
    stream_ = gpu_.make_stream();
    engine_.compute_on(stream_);
    gpu_.hold_at_most(kQueue);
    gpu_.has_started();
  }

  std::uintptr_t at(std::uint64_t block) const { return engine_.arena() + block * kUnit; }
  std::uint64_t& word(std::uint64_t block) const {
    return *reinterpret_cast<std::uint64_t*>(at(block));
  }
  void make_all() {
    engine_.tick();
    ASSERT_TRUE(engine_.on_allocate(at(0), kBlocks * kUnit));
    gpu_.launch(stream_, {{at(0), kBlocks * kUnit}}, [this] {
      for (std::uint64_t block = 0; block < kBlocks; ++block) word(block) = block + 1;
    });
    engine_.tick();
  }
  void send_all_away() {
    make_all();
    engine_.demote(at(0), kBlocks * kUnit);
    engine_.settle();
    engine_.tick();
  }
  void expect_all() {
    engine_.await(at(0), kBlocks * kUnit);
    std::uint64_t wrong = 0;
    gpu_.launch(stream_, {{at(0), kBlocks * kUnit}}, [&] {
      for (std::uint64_t block = 0; block < kBlocks; ++block) wrong += word(block) != block + 1;
    });
    gpu_.finish();
    EXPECT_EQ(wrong, 0u);
    EXPECT_THAT(gpu_.complaints(), IsEmpty());
    EXPECT_THAT(gpu_.found_full(), IsEmpty());
    EXPECT_FALSE(gpu_.was_waited_for_by(std::this_thread::get_id()));
  }

  FakeGpu gpu_{21, 4096};
  GpuEngine engine_{gpu_, {.arena_bytes = 4096 * kUnit, .granule_bytes = kUnit}};
  Stream stream_ = nullptr;
};

TEST_F(GpuEngineQueue, TakesWhatLeavesAsItHasRoom) {
  make_all();
  gpu_.hold(true);  // no helper goes on
  engine_.demote(at(0), kBlocks * kUnit);
  EXPECT_THAT(gpu_.found_full(), IsEmpty());
  EXPECT_EQ(engine_.counters().demoted_bytes, kBlocks * kUnit) << "all are on their way";
  gpu_.hold(false);
  engine_.settle();
  expect_all();
  EXPECT_EQ(engine_.counters().promoted_bytes, kBlocks * kUnit) << "all had left";
}

TEST_F(GpuEngineQueue, DoesNotTakeWhatIsRecalledBefore) {
  make_all();
  gpu_.hold(true);
  engine_.demote(at(0), kBlocks * kUnit);
  engine_.promote(at(0), kBlocks * kUnit);
  gpu_.hold(false);
  engine_.settle();
  EXPECT_EQ(engine_.counters().promoted_bytes, 0u);
  expect_all();
}

TEST_F(GpuEngineQueue, TakesWhatComesAsItHasRoom) {
  send_all_away();
  gpu_.hold(true);
  engine_.promote(at(0), kBlocks * kUnit);
  EXPECT_THAT(gpu_.found_full(), IsEmpty());
  EXPECT_LT(engine_.counters().promoted_bytes, kBlocks * kUnit);
  gpu_.hold(false);
  for (int ms = 0; engine_.counters().promoted_bytes < kBlocks * kUnit && ms < 30000; ++ms)
    usleep(1000);
  EXPECT_EQ(engine_.counters().promoted_bytes, kBlocks * kUnit) << "without another call";
  expect_all();
}

TEST_F(GpuEngineQueue, TakesWhatAnOpDemandsAsItHasRoom) {
  send_all_away();
  expect_all();
}

// Managed memory whose tensors ended on the host is brought back as others begin there.
TEST(GpuEngineManagedQueue, TakesWhatBeginsAsItHasRoom) {
  constexpr std::uint64_t kBlocks = 1000;
  auto device = std::make_unique<FakeGpu>(21, 4096);
  FakeGpu& gpu = *device;
  const auto driver = make_managed_driver(std::move(device));
  GpuEngine engine(*driver, {.arena_bytes = 1024 * kUnit, .granule_bytes = kUnit});
  const Stream stream = gpu.make_stream();
  engine.compute_on(stream);
  const auto begin = [&] {
    engine.tick();
    EXPECT_TRUE(engine.on_allocate(engine.arena(), kBlocks * kUnit));
    gpu.launch(stream, {{engine.arena(), kBlocks * kUnit}}, [] {});
    engine.tick();
  };
  begin();
  engine.demote(engine.arena(), kBlocks * kUnit);
  engine.settle();
  engine.on_free(engine.arena(), kBlocks * kUnit, true);
  gpu.finish();
  gpu.hold_at_most(1024);
  gpu.has_started();
  begin();
  EXPECT_THAT(gpu.found_full(), IsEmpty());
  gpu.finish();
  EXPECT_THAT(gpu.complaints(), IsEmpty());
}

// What it computes holds the queues of its streams, and so do the engine's events there.
TEST_F(GpuEngineQueue, IsNotFilledByAProgramThatLaunchesFarAhead) {
  for (const std::size_t streams : {1, 2}) {
    Stream its[] = {stream_, gpu_.make_stream()};
    for (std::uint64_t op = 0; op < 6000; ++op) {
      const Stream stream = its[op % streams];
      engine_.tick();
      engine_.compute_on(stream);
      ASSERT_TRUE(engine_.on_allocate(at(op % 4), kUnit));
      gpu_.launch(stream, {{at(op % 4), kUnit}}, [] {});
      engine_.on_free(at(op % 4), kUnit, true);
    }
    EXPECT_THAT(gpu_.found_full(), IsEmpty()) << streams << " streams";
    gpu_.finish();
  }
  EXPECT_THAT(gpu_.complaints(), IsEmpty());
}

// Ops whose tensors stay give a stream kernels and hardly an event.
TEST_F(GpuEngineQueue, IsNotFilledByKernelsAlone) {
  engine_.tick();
  ASSERT_TRUE(engine_.on_allocate(at(0), kUnit));
  for (std::uint64_t op = 0; op < 6000; ++op) {
    engine_.tick();
    engine_.await(at(0), kUnit);
    gpu_.launch(stream_, {{at(0), kUnit}}, [] {});
  }
  EXPECT_THAT(gpu_.found_full(), IsEmpty());
  gpu_.finish();
}

// With next to no room in any queue all waits occur, in every order.
TEST(GpuEngineShortQueue, RandomTrainingsComputeTheSame) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    auto device = std::make_unique<FakeGpu>(seed, 1000);
    FakeGpu& gpu = *device;
    std::unique_ptr<Driver> driver = std::move(device);
    if (seed % 4 == 0) driver = make_managed_driver(std::move(driver));
    HostOptions host;
    if (seed % 4 == 1)
      host = {.bytes = 16 * kUnit, .directory = ::testing::TempDir(), .allow_memory = true};
    GpuEngine engine(
        *driver,
        {.arena_bytes = 256 * kUnit, .granule_bytes = kUnit, .host = host, .queued = 1 + seed % 7});
    engine.set_budget((9 + seed % 4) * kUnit);
    RandomTraining training(seed, gpu, engine);
    for (int op = 0; op < 60; ++op) training.op();
    gpu.finish();
    ASSERT_EQ(training.wrong(), 0u) << "seed " << seed;
    ASSERT_THAT(gpu.complaints(), IsEmpty()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace sentinel::gpu
