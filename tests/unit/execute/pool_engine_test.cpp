#include "execute/gpu/pool_engine.h"

#include <gmock/gmock.h>

#include <memory>

#include "fake_gpu.h"

namespace sentinel::gpu {
namespace {

using ::testing::IsEmpty;

constexpr std::uint64_t kUnit = FakeGpu::kUnit;
constexpr std::uint64_t kWords = kUnit / 8;

class PoolEngineTest : public ::testing::Test {
 protected:
  void make(unsigned seed, std::uint64_t device_chunks = 1000, const HostOptions& host = {}) {
    end();
    gpu = std::make_unique<FakeGpu>(seed, device_chunks);
    engine = std::make_unique<PoolEngine>(
        *gpu, PoolOptions{.arena_bytes = 256 * kUnit, .granule_bytes = kUnit, .host = host});
    stream = gpu->make_stream();
    engine->compute_on(stream);
  }
  void end() {
    if (!engine) return;
    engine.reset();
    EXPECT_THAT(gpu->complaints(), IsEmpty());
  }
  void TearDown() override { end(); }

  // Some granules of the host's memory above a file.
  static HostOptions little_memory(std::uint64_t granules = HostStore::kLeast) {
    return {.bytes = granules * kUnit, .directory = ::testing::TempDir(), .allow_memory = true};
  }
  std::uintptr_t at(std::uint64_t block) const { return engine->arena() + block * kUnit; }
  std::uint64_t* words(std::uint64_t block) const {
    return reinterpret_cast<std::uint64_t*>(at(block));
  }
  // Kernels that fill a tensor, and that look at it.
  void fill(std::uint64_t block, std::uint64_t blocks, std::uint64_t value, Stream on) {
    gpu->launch(on, {{at(block), blocks * kUnit}},
                [=, this] { std::fill_n(words(block), blocks * kWords, value); });
  }
  void expect(std::uint64_t block, std::uint64_t blocks, std::uint64_t value, Stream on) {
    gpu->launch(on, {{at(block), blocks * kUnit}}, [=, this] {
      for (std::uint64_t i = 0; i < blocks * kWords; ++i) wrong += words(block)[i] != value;
    });
  }

  std::unique_ptr<FakeGpu> gpu;
  std::unique_ptr<PoolEngine> engine;
  Stream stream = nullptr;
  std::uint64_t wrong = 0;
};

TEST_F(PoolEngineTest, WhatLeavesComesBackAsItWas) {
  make(1);
  engine->set_budget(2 * kUnit);
  for (std::uint64_t block = 0; block < 6; ++block) {
    engine->tick();
    ASSERT_TRUE(engine->occupy(at(block), kUnit));
    fill(block, 1, 100 + block, stream);
    engine->demote(at(block), kUnit);
  }
  for (std::uint64_t block = 0; block < 6; ++block) {
    engine->tick();
    engine->promote(at(block), kUnit);
    engine->await(at(block), kUnit);
    expect(block, 1, 100 + block, stream);
    engine->demote(at(block), kUnit);
  }
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
  EXPECT_LE(gpu->most_chunks(), 2u);
  EXPECT_GE(engine->counters().promoted_bytes, 4 * kUnit);
}

// Tensors of one to six halves of a granule, so that neighbours share one, on two streams; what
// uses a tensor waits for what used it before, and for nothing else. They are born, also in the
// place of those that died, read, changed, sent away, asked for ahead or not, and die; under a
// budget, with the device's work done in every order that is allowed.
class RandomTraining {
 public:
  RandomTraining(unsigned seed, FakeGpu& gpu, PoolEngine& engine, std::size_t tensors = 12)
      : random_(seed), gpu_(gpu), engine_(engine), tensors_(tensors) {
    for (Stream& stream : streams_) stream = gpu.make_stream();
  }
  ~RandomTraining() {
    gpu_.finish();
    for (Event event : events_) gpu_.destroy_event(event);
  }

  std::uint64_t wrong() const { return wrong_; }

  void op() {
    engine_.tick();
    stream_ = streams_[random_() % 2];
    engine_.compute_on(stream_);
    if (live_.size() < tensors_ && random_() % 3 != 0)
      begin();
    else if (!live_.empty())
      change(live_[random_() % live_.size()]);
    if (live_.empty()) return;
    const auto t = live_.begin() + static_cast<std::ptrdiff_t>(random_() % live_.size());
    switch (random_() % 4) {
      case 0:
        return want(*t, false);
      case 1:
        return want(*t, true);
      case 2:
        engine_.vacate(t->address, t->bytes, t->wanted);
        free_.push_back(*t);
        live_.erase(t);
        return;
      default:
        return;
    }
  }

 private:
  struct Tensor {
    std::uintptr_t address;
    std::uint64_t bytes, value;
    Event used;
    bool wanted = true;
  };

  void begin() {
    Tensor t{engine_.arena() + next_, (1 + random_() % 6) * kUnit / 2, 0, nullptr};
    if (!free_.empty() && random_() % 2 == 0) {
      t.address = free_.back().address;
      t.bytes = free_.back().bytes;
      free_.pop_back();
    } else {
      next_ += t.bytes;
    }
    t.value = random_();
    events_.push_back(t.used = gpu_.make_event());
    ASSERT_TRUE(engine_.occupy(t.address, t.bytes));
    gpu_.launch(stream_, {{t.address, t.bytes}}, [t] {
      std::fill_n(reinterpret_cast<std::uint64_t*>(t.address), t.bytes / 8, t.value);
    });
    gpu_.record(t.used, stream_);
    live_.push_back(t);
  }
  void want(Tensor& t, bool wanted) {
    if (wanted && !t.wanted) engine_.promote(t.address, t.bytes);
    if (!wanted && t.wanted) {
      engine_.demote(t.address, t.bytes);
      if (random_() % 3 == 0) engine_.sink(t.address, t.bytes);
    }
    t.wanted = wanted;
  }
  void change(Tensor& t) {
    want(t, true);
    engine_.await(t.address, t.bytes);
    gpu_.wait(stream_, t.used);
    gpu_.launch(stream_, {{t.address, t.bytes}}, [t, this] {
      auto* words = reinterpret_cast<std::uint64_t*>(t.address);
      for (std::uint64_t i = 0; i < t.bytes / 8; ++i) wrong_ += words[i]++ != t.value;
    });
    gpu_.record(t.used, stream_);
    ++t.value;
  }

  std::mt19937 random_;
  FakeGpu& gpu_;
  PoolEngine& engine_;
  const std::size_t tensors_;  // alive at once, at most
  Stream streams_[2] = {}, stream_ = nullptr;
  std::vector<Tensor> live_, free_;
  std::vector<Event> events_;
  std::uint64_t next_ = 0, wrong_ = 0;
};

TEST_F(PoolEngineTest, RandomTrainingsComputeTheSame) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const bool full = seed % 3 == 0;  // the device, before the budget is used up
    make(seed, full ? 9 : 1000);
    engine->set_budget((full ? 100 : 9 + seed % 4) * kUnit);
    RandomTraining training(seed, *gpu, *engine);
    for (int op = 0; op < 60; ++op) training.op();
    gpu->finish();
    ASSERT_EQ(training.wrong(), 0u) << "seed " << seed;
    ASSERT_THAT(gpu->complaints(), IsEmpty()) << "seed " << seed;
    ASSERT_LE(gpu->most_chunks(), full ? 9 : 9 + seed % 4);
    ASSERT_FALSE(gpu->was_waited_for_by(std::this_thread::get_id()));
  }
}

// The same, where the host holds some of it only.
TEST_F(PoolEngineTest, RandomTrainingsComputeTheSameOverAFile) {
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

TEST_F(PoolEngineTest, WhatSinksComesBackFromTheFile) {
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
TEST_F(PoolEngineTest, WhatComesInGivesItsPlaceToWhatIsRead) {
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

TEST_F(PoolEngineTest, TooLittleOfTheHostIsRefused) {
  EXPECT_THROW(make(10, 1000, little_memory(HostStore::kLeast - 1)), Error);
}

// What the op that runs uses stays; what does not fit beside it is refused, and nothing has begun.
TEST_F(PoolEngineTest, RefusesWhatDoesNotFitBesideTheOp) {
  make(2);
  engine->set_budget(3 * kUnit);
  engine->tick();
  ASSERT_TRUE(engine->occupy(at(0), 2 * kUnit));
  EXPECT_FALSE(engine->occupy(at(8), 2 * kUnit));
  EXPECT_TRUE(engine->occupy(at(4), kUnit));
  engine->tick();
  EXPECT_TRUE(engine->occupy(at(8), 2 * kUnit)) << "the op before it is over";
}

TEST_F(PoolEngineTest, ADeviceThatOthersFillIsASmallerBudget) {
  make(3, 2);
  for (std::uint64_t block = 0; block < 5; ++block) {
    engine->tick();
    ASSERT_TRUE(engine->occupy(at(block), kUnit));
    fill(block, 1, block, stream);
  }
  for (std::uint64_t block = 0; block < 5; ++block) {
    engine->tick();
    engine->await(at(block), kUnit);
    expect(block, 1, block, stream);
  }
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(gpu->most_chunks(), 2u);
}

// Memory that died while a kernel still used it, on another stream, is not given away before.
TEST_F(PoolEngineTest, WhatDiesIsNotReusedBeforeItsKernelsAreOver) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    make(seed);
    const Stream other = gpu->make_stream();
    engine->set_budget(kUnit);
    engine->tick();
    engine->compute_on(other);
    ASSERT_TRUE(engine->occupy(at(0), kUnit));
    fill(0, 1, 5, other);
    for (int i = 0; i < 4; ++i) expect(0, 1, 5, other);
    engine->vacate(at(0), kUnit, true);
    engine->compute_on(stream);
    engine->tick();
    const std::uint64_t next = seed % 2;  // in its place, or elsewhere
    ASSERT_TRUE(engine->occupy(at(next), kUnit));
    fill(next, 1, 6, stream);
    gpu->finish();
    ASSERT_EQ(wrong, 0u) << "seed " << seed;
    ASSERT_THAT(gpu->complaints(), IsEmpty()) << "seed " << seed;
  }
}

// The same for what is on its way out when it is taken again.
TEST_F(PoolEngineTest, WhatDiedAndLeavesIsNotReusedBeforeItsKernelsAreOver) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    make(seed);
    const Stream other = gpu->make_stream();
    engine->set_budget(3 * kUnit);
    engine->tick();
    engine->compute_on(other);
    for (std::uint64_t block = 0; block < 3; ++block) {
      ASSERT_TRUE(engine->occupy(at(block), kUnit));
      fill(block, 1, 5, other);
    }
    for (int i = 0; i < 4; ++i)
      for (std::uint64_t block = 0; block < 3; ++block) expect(block, 1, 5, other);
    engine->vacate(at(0), 3 * kUnit, true);
    engine->compute_on(stream);
    engine->tick();
    ASSERT_TRUE(engine->occupy(at(3), kUnit));  // all three leave for it
    ASSERT_TRUE(engine->occupy(at(2), kUnit));
    fill(2, 1, 6, stream);
    gpu->finish();
    ASSERT_EQ(wrong, 0u) << "seed " << seed;
    ASSERT_THAT(gpu->complaints(), IsEmpty()) << "seed " << seed;
  }
}

TEST_F(PoolEngineTest, WhatIsOnItsWayInMayLeaveAgain) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    make(seed);
    engine->set_budget(4 * kUnit);
    for (std::uint64_t block = 0; block < 3; ++block) {
      engine->tick();
      ASSERT_TRUE(engine->occupy(at(block), kUnit));
      fill(block, 1, block, stream);
      engine->demote(at(block), kUnit);
    }
    for (int round = 0; round < 8; ++round) {
      engine->tick();
      const std::uint64_t block = static_cast<std::uint64_t>(round) % 3;
      engine->promote(at(block), kUnit);
      engine->demote(at(block), kUnit);
      usleep(50);  // sometimes it has gone before it is asked for again
    }
    for (std::uint64_t block = 0; block < 3; ++block) {
      engine->tick();
      engine->promote(at(block), kUnit);
      engine->await(at(block), kUnit);
      expect(block, 1, block, stream);
    }
    gpu->finish();
    ASSERT_EQ(wrong, 0u) << "seed " << seed;
    ASSERT_THAT(gpu->complaints(), IsEmpty()) << "seed " << seed;
  }
}

TEST_F(PoolEngineTest, NothingOfTheDeviceIsLeftBehind) {
  make(4);
  engine->set_budget(2 * kUnit);
  for (std::uint64_t block = 0; block < 4; ++block) {
    engine->tick();
    ASSERT_TRUE(engine->occupy(at(block), kUnit));
    engine->demote(at(block), kUnit);
  }
  engine.reset();
  gpu->destroy_stream(stream);
  EXPECT_EQ(gpu->left(), 0u);
  EXPECT_THAT(gpu->complaints(), IsEmpty());
}

TEST_F(PoolEngineTest, ALowerBudgetThatIsRefusedChangesNothing) {
  make(7);
  engine->set_budget(4 * kUnit);
  engine->tick();
  ASSERT_TRUE(engine->occupy(at(0), 3 * kUnit));
  fill(0, 3, 5, stream);
  EXPECT_THROW(engine->set_budget(2 * kUnit), Error);
  ASSERT_TRUE(engine->occupy(at(8), kUnit));
  engine->tick();
  engine->set_budget(2 * kUnit);
  engine->await(at(0), kUnit);
  expect(0, 1, 5, stream);
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
  EXPECT_LE(gpu->free_bytes(), 998 * kUnit);
}

TEST_F(PoolEngineTest, AStreamMayEnd) {
  make(8);
  const Stream other = gpu->make_stream();
  engine->set_budget(2 * kUnit);
  engine->tick();
  engine->compute_on(other);
  ASSERT_TRUE(engine->occupy(at(0), kUnit));
  fill(0, 1, 5, other);
  engine->forget(other);
  gpu->finish();
  gpu->destroy_stream(other);
  engine->compute_on(stream);
  for (std::uint64_t block = 1; block < 4; ++block) {
    engine->tick();
    ASSERT_TRUE(engine->occupy(at(block), kUnit));
  }
  engine->tick();
  engine->await(at(0), kUnit);
  expect(0, 1, 5, stream);
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
}

TEST_F(PoolEngineTest, TwoDevicesDoNotKnowEachOthersStreams) {
  make(9);
  FakeGpu second(9, 100);
  PoolEngine engine2(second, {.arena_bytes = 16 * kUnit, .granule_bytes = kUnit});
  for (int i = 0; i < 5; ++i) second.make_stream();  // names that the first device does not have
  engine2.compute_on(second.make_stream());
  engine2.tick();
  ASSERT_TRUE(engine2.occupy(engine2.arena(), kUnit));
  engine->tick();
  ASSERT_TRUE(engine->occupy(at(0), kUnit));
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

class PoolEngineDeathTest : public PoolEngineTest {
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }  // with its helper
};

TEST_F(PoolEngineDeathTest, ARefusedCallEndsTheProcessWithItsName) {
  make(5);
  gpu->refuse("cuMemMap");
  EXPECT_EXIT(engine->occupy(at(0), kUnit), ::testing::ExitedWithCode(125),
              "training stopped: cuMemMap: CUDA_ERROR_OUT_OF_MEMORY.*No wrong number");
  gpu->refuse("");
}

TEST_F(PoolEngineDeathTest, AHostWithoutMemorySaysWhatToDo) {
  make(13);
  engine->tick();
  ASSERT_TRUE(engine->occupy(at(0), kUnit));
  engine->tick();
  gpu->refuse("cuMemHostAlloc");
  EXPECT_EXIT(engine->demote(at(0), kUnit), ::testing::ExitedWithCode(125),
              "cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY.*limit it with --host-memory");
  gpu->refuse("");
}

// Injected into the file's transfers: what cannot be written or read back ends training.
TEST_F(PoolEngineDeathTest, AFileThatFailsEndsTheProcess) {
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

TEST_F(PoolEngineDeathTest, AnOpThatUsesMoreThanTheBudgetEndsTheProcess) {
  make(6);
  engine->set_budget(2 * kUnit);
  for (std::uint64_t block = 0; block < 3; ++block) {
    engine->tick();
    ASSERT_TRUE(engine->occupy(at(block), kUnit));
    engine->demote(at(block), kUnit);
  }
  engine->tick();
  EXPECT_EXIT(engine->await(at(0), 3 * kUnit), ::testing::ExitedWithCode(125),
              "an op uses more than the 8.00 KiB of the device's memory");
}

}  // namespace
}  // namespace sentinel::gpu
