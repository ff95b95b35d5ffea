#include "engine/gpu/gpu_engine.h"

#include "engine/gpu/managed_driver.h"
#include "unit/engine/gpu/gpu_engine_fixture.h"

namespace sentinel::gpu {
namespace {

using ::testing::IsEmpty;

using GpuEngineTest = GpuEngineFixture;

TEST_F(GpuEngineTest, WhatLeavesComesBackAsItWas) {
  make(1);
  engine->set_budget(2 * kUnit);
  for (std::uint64_t block = 0; block < 6; ++block) {
    engine->tick();
    ASSERT_TRUE(engine->on_allocate(at(block), kUnit));
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

TEST_F(GpuEngineTest, RandomTrainingsComputeTheSame) {
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

// In managed memory kernels would bring what is elsewhere, one fault after the other: none has to,
// also where what died on the host begins anew, or is recalled on its way there.
TEST_F(GpuEngineTest, NoKernelFaultsInManagedMemory) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    auto below = std::make_unique<FakeGpu>(seed, 1000);
    FakeGpu& device = *below;
    const auto driver = make_managed_driver(std::move(below));
    GpuEngine managed(*driver, {.arena_bytes = 256 * kUnit, .granule_bytes = kUnit});
    managed.set_budget((9 + seed % 4) * kUnit);
    RandomTraining training(seed, device, managed);
    for (int op = 0; op < 60; ++op) training.op();
    device.finish();
    ASSERT_EQ(training.wrong(), 0u) << "seed " << seed;
    ASSERT_THAT(device.complaints(), IsEmpty()) << "seed " << seed;
    ASSERT_GT(device.prefetched_in(), 0u);
    ASSERT_EQ(device.faults_of_kernels(), 0u) << "seed " << seed;
  }
}

// A pager that names anything at any time.
class RandomPager final : public Pager {
 public:
  RandomPager(unsigned seed, std::uint32_t blocks) : random_(seed), blocks_(blocks) {}
  void kernel_start(std::uint64_t) override { commands_ = random_() % 8; }
  void kernel_end() override {}
  void touched(BlockId) override {}
  bool expected(BlockId) const override { return blocks_ % 2 == 0; }
  void arrived(BlockId) override {}
  void left(BlockId) override {}
  std::optional<BlockId> prefetch(const BlockView& view) override {
    if (commands_ == 0) return std::nullopt;
    --commands_;
    const auto block = any();
    return view.present(block) ? any() : block;
  }
  std::optional<BlockId> victim(bool) override {
    return random_() % 8 == 0 ? std::nullopt : std::optional(any());
  }
  bool pre_evicts() const override { return blocks_ % 3 != 0; }

 private:
  BlockId any() { return BlockId(random_() % blocks_); }

  std::mt19937 random_;
  std::uint32_t blocks_;
  std::size_t commands_ = 0;
};

// Plans and pagers beside each other do not occur, and would do no harm either.
TEST_F(GpuEngineTest, WhateverAPagerSaysTheSameIsComputed) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    make(seed);
    RandomTraining training(seed, *gpu, *engine);
    for (int op = 0; op < 100; ++op) {
      if (op == 10) engine->page(std::make_unique<RandomPager>(seed, 40 + seed % 300));
      if (op == 12) engine->set_budget((9 + seed % 9) * kUnit);
      engine->kernel(op % 7u);
      training.op();
    }
    gpu->finish();
    ASSERT_EQ(training.wrong(), 0u) << "seed " << seed;
    ASSERT_THAT(gpu->complaints(), IsEmpty()) << "seed " << seed;
    ASSERT_FALSE(gpu->was_waited_for_by(std::this_thread::get_id()));
  }
}

// What the op that runs uses stays; what does not fit beside it is refused, and nothing has begun.
TEST_F(GpuEngineTest, RefusesWhatDoesNotFitBesideTheOp) {
  make(2);
  engine->set_budget(3 * kUnit);
  engine->tick();
  ASSERT_TRUE(engine->on_allocate(at(0), 2 * kUnit));
  EXPECT_FALSE(engine->on_allocate(at(8), 2 * kUnit));
  EXPECT_TRUE(engine->on_allocate(at(4), kUnit));
  engine->tick();
  EXPECT_TRUE(engine->on_allocate(at(8), 2 * kUnit)) << "the op before it is over";
}

TEST_F(GpuEngineTest, ADeviceThatOthersFillIsASmallerBudget) {
  make(3, 2);
  for (std::uint64_t block = 0; block < 5; ++block) {
    engine->tick();
    ASSERT_TRUE(engine->on_allocate(at(block), kUnit));
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

// The program's libraries ask the device for memory themselves, as do others for theirs.
TEST_F(GpuEngineTest, SomeOfTheDeviceIsLeftFree) {
  make(14, 120, {}, 20);
  const auto begin_each = [&](std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t block = first; block < last; ++block) {
      engine->tick();
      ASSERT_TRUE(engine->on_allocate(at(block), kUnit));
      fill(block, 1, block, stream);
    }
  };
  begin_each(0, 40);
  gpu->others_take(30);
  begin_each(40, 130);
  EXPECT_EQ(gpu->most_chunks(), 70u);
  engine->tick();
  EXPECT_TRUE(engine->on_allocate(at(130), 80 * kUnit)) << "one op cannot do without";
  EXPECT_EQ(gpu->most_chunks(), 80u);
  for (std::uint64_t block = 0; block < 130; ++block) {
    engine->tick();
    engine->await(at(block), kUnit);
    expect(block, 1, block, stream);
  }
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
}

TEST(SpareMemory, IsAShareOfTheDevices) {
  EXPECT_EQ(spare_of(80ull << 30), (80ull << 30) / 50);
  EXPECT_EQ(spare_of(16ull << 30), 512u << 20);
  EXPECT_EQ(spare_of(1u << 30), 128u << 20) << "most of a small one is the program's";
}

// Memory that died while a kernel still used it, on another stream, is not given away before.
TEST_F(GpuEngineTest, WhatDiesIsNotReusedBeforeItsKernelsAreOver) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    make(seed);
    const Stream other = gpu->make_stream();
    engine->set_budget(kUnit);
    engine->tick();
    engine->compute_on(other);
    ASSERT_TRUE(engine->on_allocate(at(0), kUnit));
    fill(0, 1, 5, other);
    for (int i = 0; i < 4; ++i) expect(0, 1, 5, other);
    engine->on_free(at(0), kUnit, true);
    engine->compute_on(stream);
    engine->tick();
    const std::uint64_t next = seed % 2;  // in its place, or elsewhere
    ASSERT_TRUE(engine->on_allocate(at(next), kUnit));
    fill(next, 1, 6, stream);
    gpu->finish();
    ASSERT_EQ(wrong, 0u) << "seed " << seed;
    ASSERT_THAT(gpu->complaints(), IsEmpty()) << "seed " << seed;
  }
}

// The same for what is on its way out when it is taken again.
TEST_F(GpuEngineTest, WhatDiedAndLeavesIsNotReusedBeforeItsKernelsAreOver) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    make(seed);
    const Stream other = gpu->make_stream();
    engine->set_budget(3 * kUnit);
    engine->tick();
    engine->compute_on(other);
    for (std::uint64_t block = 0; block < 3; ++block) {
      ASSERT_TRUE(engine->on_allocate(at(block), kUnit));
      fill(block, 1, 5, other);
    }
    for (int i = 0; i < 4; ++i)
      for (std::uint64_t block = 0; block < 3; ++block) expect(block, 1, 5, other);
    engine->on_free(at(0), 3 * kUnit, true);
    engine->compute_on(stream);
    engine->tick();
    ASSERT_TRUE(engine->on_allocate(at(3), kUnit));  // all three leave for it
    ASSERT_TRUE(engine->on_allocate(at(2), kUnit));
    fill(2, 1, 6, stream);
    gpu->finish();
    ASSERT_EQ(wrong, 0u) << "seed " << seed;
    ASSERT_THAT(gpu->complaints(), IsEmpty()) << "seed " << seed;
  }
}

// A plan has fetches beside the pool of what lives briefly, and they leave its memory alone. What
// an op cannot do without does not.
TEST_F(GpuEngineTest, APoolsMemoryIsForWhatBeginsThere) {
  for (const bool held : {true, false}) {
    make(17);
    engine->set_budget(4 * kUnit);
    if (held) engine->hold_pool(at(0), 2 * kUnit);
    for (std::uint64_t block = 8; block < 12; ++block) {
      engine->tick();
      ASSERT_TRUE(engine->on_allocate(at(block), kUnit));
      fill(block, 1, block, stream);
      engine->demote(at(block), kUnit);
    }
    for (std::uint64_t step = 0; step < 20; ++step) {
      engine->tick();
      ASSERT_TRUE(engine->on_allocate(at(0), 2 * kUnit));
      fill(0, 2, step, stream);
      engine->on_free(at(0), 2 * kUnit, true);
      gpu->finish();
      engine->tick();
      for (std::uint64_t block = 8; block < 12; ++block) engine->promote(at(block), kUnit);
      for (std::uint64_t block = 8; block < 12; ++block) engine->demote(at(block), kUnit);
      engine->settle();
    }
    EXPECT_EQ(gpu->times_mapped(at(0)) == 1, held);
    EXPECT_EQ(gpu->times_mapped(at(1)) == 1, held);
    engine->tick();
    EXPECT_TRUE(engine->on_allocate(at(20), 4 * kUnit));
    EXPECT_EQ(gpu->most_chunks(), 4u);
    engine->on_free(at(20), 4 * kUnit, true);
    if (held) engine->let_pool_go(at(0), 2 * kUnit);
    for (std::uint64_t block = 8; block < 12; ++block) {
      engine->tick();
      engine->await(at(block), kUnit);
      expect(block, 1, block, stream);
    }
    gpu->finish();
    EXPECT_EQ(wrong, 0u);
  }
}

// A stream's own order suffices: what computes waits for nothing. Two streams have none.
TEST_F(GpuEngineTest, WhereOneStreamComputesDeadMemoryIsReusedAtOnce) {
  for (const bool second : {false, true}) {
    make(15);
    engine->set_budget(2 * kUnit);
    const auto begin_and_end = [&](Stream on) {
      engine->compute_on(on);
      engine->tick();
      ASSERT_TRUE(engine->on_allocate(at(0), kUnit));
      fill(0, 1, 7, on);
      engine->on_free(at(0), kUnit, true);
    };
    begin_and_end(second ? gpu->make_stream() : stream);
    begin_and_end(stream);
    const auto waits = gpu->waits(stream);
    for (int i = 0; i < 20; ++i) begin_and_end(stream);
    EXPECT_EQ(gpu->waits(stream) - waits, second ? 20u : 0u);
    gpu->finish();
  }
}

// What was launched on a stream that ended may run on; who computes on others waits for that.
TEST_F(GpuEngineTest, AStreamThatEndedIsStillWaitedFor) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    for (const bool beside : {false, true}) {
      make(seed);
      const Stream other = gpu->make_stream();
      engine->tick();
      ASSERT_TRUE(engine->on_allocate(at(1), kUnit));
      if (beside) engine->on_allocate(at(0), kUnit / 2);
      engine->compute_on(other);
      engine->tick();
      const auto half = at(0) + kUnit / 2;
      ASSERT_TRUE(engine->on_allocate(half, kUnit / 2));
      const auto store = [&](std::uint64_t value, Stream on) {
        gpu->launch(on, {{half, kUnit / 2}},
                    [=] { *reinterpret_cast<std::uint64_t*>(half) = value; });
      };
      store(5, other);
      engine->forget(other);
      engine->compute_on(stream);
      engine->on_free(half, kUnit / 2, true);
      engine->tick();
      ASSERT_TRUE(engine->on_allocate(half, kUnit / 2));
      store(6, stream);
      gpu->finish();
      ASSERT_EQ(*reinterpret_cast<std::uint64_t*>(half), 6u) << "seed " << seed;
    }
  }
}

// The driver's calls take as long as the copies.
TEST_F(GpuEngineTest, NeighboursThatComeTogetherAreMappedTogether) {
  make(18);
  engine->tick();
  ASSERT_TRUE(engine->on_allocate(at(0), 40 * kUnit));
  fill(0, 40, 9, stream);
  engine->tick();
  engine->demote(at(0), 40 * kUnit);
  engine->settle();
  const auto before = gpu->mappings();
  engine->promote(at(30), 10 * kUnit);
  EXPECT_EQ(gpu->mappings() - before, 1u);
  engine->set_budget(30 * kUnit);  // of which ten are taken
  engine->promote(at(0), 30 * kUnit);
  EXPECT_EQ(gpu->mappings() - before, 1u + 2u) << "sixteen and four";
  engine->set_budget(0);
  engine->tick();
  engine->await(at(0), 40 * kUnit);
  expect(0, 40, 9, stream);
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
}

// What has left by the time the helper looks; where the device takes longer, one after the other.
TEST_F(GpuEngineTest, NeighboursThatHaveLeftAreUnmappedTogether) {
  make(18);
  gpu->wake_late();
  engine->tick();
  ASSERT_TRUE(engine->on_allocate(at(0), 60 * kUnit));
  fill(0, 60, 9, stream);
  engine->tick();
  const auto unmappings_of = [&](std::initializer_list<std::pair<int, int>> parts) {
    const auto before = gpu->unmappings();
    for (const auto& [first, count] : parts) engine->demote(at(first), count * kUnit);
    engine->settle();
    return gpu->unmappings() - before;
  };
  EXPECT_EQ(unmappings_of({{0, 20}}), 2u) << "sixteen and four";
  EXPECT_EQ(unmappings_of({{24, 1}, {22, 1}, {20, 1}}), 3u) << "no neighbours";
  EXPECT_EQ(unmappings_of({{30, 30}}), 2u);
  engine->tick();
  engine->await(at(0), 60 * kUnit);
  expect(0, 60, 9, stream);
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
  EXPECT_FALSE(gpu->was_waited_for_by(std::this_thread::get_id()));
}

// As many as the next tensor needs, of one that ended before it.
TEST_F(GpuEngineTest, NeighboursThatDiedAreUnmappedTogether) {
  make(18);
  engine->set_budget(40 * kUnit);
  engine->tick();
  ASSERT_TRUE(engine->on_allocate(at(0), 40 * kUnit));
  fill(0, 40, 9, stream);
  engine->on_free(at(0), 40 * kUnit, true);
  gpu->finish();
  engine->tick();
  const auto before = gpu->unmappings();
  ASSERT_TRUE(engine->on_allocate(at(50), 16 * kUnit));
  EXPECT_EQ(gpu->unmappings() - before, 1u);
  fill(50, 16, 5, stream);
  expect(50, 16, 5, stream);
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
}

// It waits for its departure's event, and has none of its own that others would come to wait for.
TEST_F(GpuEngineTest, WhatIsRecalledHoldsNobodyElseBack) {
  constexpr std::uint64_t kRounds = 20, kBlocks = 50;
  make(19);
  engine->tick();
  ASSERT_TRUE(engine->on_allocate(at(0), kBlocks * kUnit));
  fill(0, kBlocks, 4, stream);
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    engine->tick();
    gpu->hold(true);  // so that nothing has left before it is asked for again
    engine->demote(at(0), kBlocks * kUnit);
    const auto recorded = gpu->recorded();
    engine->promote(at(0), kBlocks * kUnit);
    EXPECT_EQ(gpu->recorded(), recorded);
    gpu->hold(false);
    engine->await(at(0), kBlocks * kUnit);
    expect(0, kBlocks, 4, stream);
  }
  gpu->finish();
  EXPECT_EQ(engine->counters().promoted_bytes, 0u) << "all was recalled";
  EXPECT_EQ(wrong, 0u);
}

// However many granules end, leave or come at once.
TEST_F(GpuEngineTest, WhatEndsTogetherSharesAnEvent) {
  make(16);
  engine->tick();
  ASSERT_TRUE(engine->on_allocate(at(0), 50 * kUnit));
  ASSERT_TRUE(engine->on_allocate(at(50), 50 * kUnit));
  fill(0, 100, 3, stream);
  engine->tick();
  auto before = gpu->recorded();
  engine->on_free(at(0), 50 * kUnit, true);
  EXPECT_EQ(gpu->recorded() - before, 1u) << "on the stream that computes";
  before = gpu->recorded();
  engine->demote(at(50), 50 * kUnit);
  EXPECT_EQ(gpu->recorded() - before, 1u + 4u) << "and behind sixteen copies each";
  engine->settle();
  engine->tick();
  before = gpu->recorded();
  engine->await(at(50), 50 * kUnit);
  EXPECT_EQ(gpu->recorded() - before, 4u) << "behind sixteen copies each";
  expect(50, 50, 3, stream);
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
}

TEST_F(GpuEngineTest, WhatIsOnItsWayInMayLeaveAgain) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    make(seed);
    engine->set_budget(4 * kUnit);
    for (std::uint64_t block = 0; block < 3; ++block) {
      engine->tick();
      ASSERT_TRUE(engine->on_allocate(at(block), kUnit));
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

TEST_F(GpuEngineTest, NothingOfTheDeviceIsLeftBehind) {
  make(4);
  engine->set_budget(2 * kUnit);
  for (std::uint64_t block = 0; block < 4; ++block) {
    engine->tick();
    ASSERT_TRUE(engine->on_allocate(at(block), kUnit));
    engine->demote(at(block), kUnit);
  }
  engine.reset();
  gpu->destroy_stream(stream);
  EXPECT_EQ(gpu->left(), 0u);
  EXPECT_THAT(gpu->complaints(), IsEmpty());
}

TEST_F(GpuEngineTest, ALowerBudgetThatIsRefusedChangesNothing) {
  make(7);
  engine->set_budget(4 * kUnit);
  engine->tick();
  ASSERT_TRUE(engine->on_allocate(at(0), 3 * kUnit));
  fill(0, 3, 5, stream);
  EXPECT_THROW(engine->set_budget(2 * kUnit), Error);
  ASSERT_TRUE(engine->on_allocate(at(8), kUnit));
  engine->tick();
  engine->set_budget(2 * kUnit);
  engine->await(at(0), kUnit);
  expect(0, 1, 5, stream);
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
  EXPECT_LE(gpu->free_bytes(), 998 * kUnit);
}

}  // namespace
}  // namespace sentinel::gpu
