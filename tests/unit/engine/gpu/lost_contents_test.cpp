// Contents on a GPU that are given up, and filled again by copies in a stream's order. The device
// does its work late and in any order that is allowed (fake_gpu.h).
#include "engine/gpu/lost_contents.h"

#include <deque>
#include <thread>

#include "unit/engine/gpu/gpu_engine_fixture.h"

namespace sentinel::gpu {
namespace {

// A GPU's kernels touch nothing that is lost, so nobody is told.
class Nobody final : public Remaker {
 public:
  void touched(std::uintptr_t) noexcept override { std::abort(); }
};

class LostContentsTest : public GpuEngineFixture {
 protected:
  static constexpr std::uint64_t kScratch = 200;  // a granule behind all others

  void begin(unsigned seed, std::uint64_t budget = 40) {
    make(seed);
    engine->remake_with(&nobody);
    engine->set_budget(budget * kUnit);
  }
  void TearDown() override {
    gpu->finish();  // kernels ask the engine where blocks lie
    GpuEngineFixture::TearDown();
  }
  void born(std::uint64_t block, std::uint64_t blocks, std::uint64_t value) {
    engine->tick();
    ASSERT_TRUE(engine->on_allocate(at(block), blocks * kUnit));
    fill(block, blocks, value, stream);
  }
  std::uint64_t discard(std::uint64_t block, std::uint64_t blocks, Engine::Ends ends = {}) {
    return engine->discard(at(block), blocks * kUnit, ends);
  }
  // As a replay: it computes into memory of its own.
  void remake(std::uint64_t block, std::uint64_t blocks, std::uint64_t value) {
    engine->tick();
    ASSERT_TRUE(engine->on_allocate(at(kScratch), blocks * kUnit));
    fill(kScratch, blocks, value, stream);
    engine->refill(at(block), blocks * kUnit, words(kScratch));
    engine->on_free(at(kScratch), blocks * kUnit, true);
  }
  void use(std::uint64_t block, std::uint64_t blocks, std::uint64_t value) {
    engine->tick();
    engine->await(at(block), blocks * kUnit);
    expect(block, blocks, value, stream);
  }
  void demote(std::uint64_t block, std::uint64_t blocks) {
    engine->tick();
    engine->demote(at(block), blocks * kUnit);
    engine->settle();
  }

  DeviceContents* contents() { return engine->device()->contents(); }

  Nobody nobody;
};

class LostContentsSeeds : public LostContentsTest,
                          public ::testing::WithParamInterface<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, LostContentsSeeds, ::testing::Range(1u, 17u));

TEST_P(LostContentsSeeds, WhatIsGivenUpIsNotCopiedAndItsMemoryIsOthers) {
  begin(GetParam(), 8);
  born(0, 8, 7);
  EXPECT_EQ(discard(0, 8), 8 * kUnit);
  born(20, 8, 9);  // in all of the budget
  use(20, 8, 9);
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
  const auto counters = engine->counters();
  EXPECT_EQ(counters.demoted_bytes, 0u);
  EXPECT_EQ(counters.discarded_bytes, 8 * kUnit);
  EXPECT_LE(counters.peak_bytes, 8 * kUnit);
}

TEST_P(LostContentsSeeds, ItIsFilledInTheOrderOfTheStream) {
  begin(GetParam());
  born(0, 8, 7);
  ASSERT_EQ(discard(0, 8), 8 * kUnit);
  if (GetParam() % 2 == 0) engine->settle();  // else its memory is there still
  remake(0, 8, 7);
  use(0, 8, 7);
  engine->tick();
  engine->await(at(0), 8 * kUnit);
  fill(0, 8, 8, stream);  // what it is next comes behind
  use(0, 8, 8);
  EXPECT_FALSE(gpu->was_waited_for_by(std::this_thread::get_id()));
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(engine->counters().refilled_bytes, 8 * kUnit);
  EXPECT_EQ(engine->counters().demand_faults, 0u);
}

TEST_P(LostContentsSeeds, WhatIsAwayLosesItsPlace) {
  begin(GetParam());
  born(0, 8, 7);
  demote(0, 8);
  EXPECT_EQ(discard(0, 8), 8 * kUnit);
  engine->promote(at(0), 8 * kUnit);  // brings nothing
  engine->await(at(0), 8 * kUnit);    // and waits for nothing
  EXPECT_EQ(engine->counters().promoted_bytes, 0u);
  remake(0, 8, 7);
  use(0, 8, 7);
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
}

TEST_P(LostContentsSeeds, FilledAgainItMovesAsBefore) {
  begin(GetParam());
  born(0, 8, 7);
  ASSERT_EQ(discard(0, 8), 8 * kUnit);
  remake(0, 8, 7);
  demote(0, 8);
  EXPECT_EQ(engine->counters().demoted_bytes, 8 * kUnit);
  engine->promote(at(0), 8 * kUnit);
  use(0, 8, 7);
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
}

TEST_P(LostContentsSeeds, TheDeadAreEmptyAndServeAgain) {
  begin(GetParam());
  born(0, 8, 7);
  ASSERT_EQ(discard(0, 8), 8 * kUnit);
  if (GetParam() % 2 == 0) engine->settle();
  engine->on_free(at(0), 8 * kUnit, true);
  born(0, 8, 9);
  use(0, 8, 9);
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
}

TEST_P(LostContentsSeeds, WhatIsOverwrittenHasMemoryAndNoContents) {
  begin(GetParam());
  born(0, 8, 7);
  ASSERT_EQ(discard(0, 8), 8 * kUnit);
  engine->tick();
  engine->overwrite(at(0), 8 * kUnit);
  fill(0, 8, 9, stream);
  demote(0, 8);
  engine->promote(at(0), 8 * kUnit);
  use(0, 8, 9);
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(engine->counters().refilled_bytes, 0u);
}

// A tensor from the middle of one granule to the middle of another.
class LostEnds : public LostContentsSeeds {
 protected:
  static constexpr std::uint64_t kHalf = kUnit / 2, kBytes = 3 * kUnit;

  std::uintptr_t tensor() const { return at(10) + kHalf; }
  std::uintptr_t behind() const { return tensor() + kBytes; }
  void fill_it(std::uintptr_t address, std::uint64_t bytes, std::uint64_t value) {
    gpu->launch(stream, {{address, bytes}},
                [=] { std::fill_n(reinterpret_cast<std::uint64_t*>(address), bytes / 8, value); });
  }
  void expect_it(std::uintptr_t address, std::uint64_t bytes, std::uint64_t value) {
    engine->tick();
    engine->await(address, bytes);
    gpu->launch(stream, {{address, bytes}}, [=, this] {
      for (std::uint64_t i = 0; i < bytes / 8; ++i)
        wrong += reinterpret_cast<std::uint64_t*>(address)[i] != value;
    });
  }
  void born_there() {
    begin(GetParam());
    ASSERT_TRUE(engine->on_allocate(tensor(), kBytes));
    fill_it(tensor(), kBytes, 7);
    engine->tick();
  }
  void refill() {
    ASSERT_TRUE(engine->on_allocate(at(kScratch), kBytes));
    fill(kScratch, 3, 7, stream);
    engine->refill(tensor(), kBytes, words(kScratch));
    engine->on_free(at(kScratch), kBytes, true);
  }
  void right() {
    gpu->finish();
    EXPECT_EQ(wrong, 0u);
  }
};
INSTANTIATE_TEST_SUITE_P(Seeds, LostEnds, ::testing::Range(1u, 9u));

TEST_P(LostEnds, BothAreLostAndFilledAgain) {
  born_there();
  EXPECT_EQ(engine->discard(tensor(), kBytes, {}), 4 * kUnit);
  refill();
  expect_it(tensor(), kBytes, 7);
  right();
}

TEST_P(LostEnds, AnEndThatMayNotGoStays) {
  born_there();
  EXPECT_EQ(engine->discard(tensor(), kBytes, {.first = false, .last = false}), 2 * kUnit);
  refill();
  EXPECT_EQ(engine->discard(tensor(), kBytes, {.first = true, .last = false}), 3 * kUnit);
  refill();
  expect_it(tensor(), kBytes, 7);
  right();
}

TEST_P(LostEnds, BlocksThatOthersShareStay) {
  born_there();
  ASSERT_TRUE(engine->on_allocate(behind(), kHalf));
  fill_it(behind(), kHalf, 9);
  engine->tick();
  EXPECT_EQ(engine->discard(tensor(), kBytes, {}), 3 * kUnit);
  refill();
  expect_it(tensor(), kBytes, 7);
  expect_it(behind(), kHalf, 9);
  right();
}

// It goes away and comes with the other, and only the tensor's part is filled.
TEST_P(LostEnds, AnotherBeginsInOne) {
  born_there();
  ASSERT_EQ(engine->discard(tensor(), kBytes, {}), 4 * kUnit);
  if (GetParam() % 2 == 0) engine->settle();
  ASSERT_TRUE(engine->on_allocate(behind(), kHalf));
  fill_it(behind(), kHalf, 9);
  engine->tick();
  if (GetParam() % 4 < 2) {
    engine->demote(tensor(), kBytes);  // as at a step's border
    engine->demote(behind(), kHalf);
    engine->settle();
    EXPECT_EQ(engine->counters().demoted_bytes, kUnit);
    engine->promote(tensor(), kBytes);
    engine->promote(behind(), kHalf);
  }
  expect_it(behind(), kHalf, 9);
  refill();
  expect_it(tensor(), kBytes, 7);
  expect_it(behind(), kHalf, 9);
  right();
}

TEST_P(LostEnds, WhatBeganInOneOutlivesTheTensor) {
  born_there();
  ASSERT_EQ(engine->discard(tensor(), kBytes, {}), 4 * kUnit);
  ASSERT_TRUE(engine->on_allocate(behind(), kHalf));
  fill_it(behind(), kHalf, 9);
  engine->tick();
  engine->on_free(tensor(), kBytes, true);
  engine->demote(behind(), kHalf);
  engine->settle();
  engine->promote(behind(), kHalf);
  expect_it(behind(), kHalf, 9);
  right();
}

TEST_P(LostEnds, WhatBeganInOneLeavesTheTensorLost) {
  born_there();
  ASSERT_EQ(engine->discard(tensor(), kBytes, {}), 4 * kUnit);
  ASSERT_TRUE(engine->on_allocate(behind(), kHalf));
  engine->tick();
  engine->on_free(behind(), kHalf, true);
  if (GetParam() % 2 == 0) {
    engine->demote(tensor(), kBytes);
    engine->settle();
    EXPECT_EQ(engine->counters().demoted_bytes, 0u);
    engine->promote(tensor(), kBytes);
  }
  refill();
  expect_it(tensor(), kBytes, 7);
  right();
}

TEST_F(LostContentsTest, TheOperandsOfALaunchStay) {
  begin(1);
  born(0, 2, 7);
  engine->launching(true);
  EXPECT_EQ(discard(0, 2), 0u);
  engine->launching(false);
  EXPECT_EQ(discard(0, 2), 2 * kUnit);
}

TEST_F(LostContentsTest, WhatIsPinnedStays) {
  begin(1);
  born(0, 2, 7);
  engine->pin(at(1), kUnit);
  EXPECT_EQ(discard(0, 2), kUnit);
}

TEST_F(LostContentsTest, WithoutSomebodyWhoRemakesNothingIsLost) {
  begin(1);
  born(0, 2, 7);
  engine->remake_with(nullptr);
  EXPECT_EQ(discard(0, 2), 0u);
}

TEST_F(LostContentsTest, WhileAllIsKeptNothingIsLost) {
  begin(1);
  born(0, 2, 7);
  engine->tick();
  ASSERT_TRUE(engine->keep_all(true));
  EXPECT_EQ(discard(0, 2), 0u);
  engine->keep_all(false);
  ASSERT_EQ(discard(0, 2), 2 * kUnit);
  engine->settle();
  EXPECT_FALSE(engine->keep_all(true));
}

TEST_F(LostContentsTest, OnTwoStreamsNothingIsLost) {
  begin(1);
  born(0, 2, 7);
  engine->compute_on(gpu->make_stream());
  born(4, 2, 9);
  EXPECT_EQ(discard(0, 2), 0u);
}

// What was lost before another stream came: what that computes waits for the copy, and what the
// first writes waits for what was read beside its ops.
TEST_P(LostContentsSeeds, AnotherStreamWaitsForTheFilling) {
  begin(GetParam());
  born(0, 4, 7);
  born(10, 1, 5);
  ASSERT_EQ(discard(0, 4), 4 * kUnit);
  const Stream other = gpu->make_stream();
  engine->compute_on(other);
  engine->tick();
  engine->await(at(10), kUnit);
  ASSERT_TRUE(engine->on_allocate(at(kScratch), 4 * kUnit));
  gpu->launch(other, {{at(10), kUnit}, {at(kScratch), 4 * kUnit}},
              [this] { std::fill_n(words(kScratch), 4 * kWords, words(10)[0] + 2); });
  engine->refill(at(0), 4 * kUnit, words(kScratch));
  contents()->used_here(at(10), kUnit);
  contents()->used_here(at(0), 4 * kUnit);
  engine->compute_on(stream);
  use(0, 4, 7);
  engine->tick();
  engine->await(at(10), kUnit);
  fill(10, 1, 99, stream);
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
}

TEST_P(LostContentsSeeds, TheHostSeesBytesAndSetsThem) {
  begin(GetParam(), 8);
  born(0, 8, 7);
  demote(0, 8);
  born(20, 8, 9);
  engine->tick();
  std::vector<std::uint64_t> seen(8 * kWords);
  contents()->read(at(0), 8 * kUnit, seen.data());
  EXPECT_THAT(seen, ::testing::Each(7));
  std::ranges::fill(seen, 8);
  contents()->write(at(0), 8 * kUnit, seen.data());
  use(0, 8, 8);
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
}

// Whatever happens in whatever order, each kernel finds what was written last. Tensors of one to
// six halves of a granule share ends.
TEST_P(LostContentsSeeds, RandomActionsLoseNothing) {
  constexpr std::uint64_t kHalf = kUnit / 2;
  begin(GetParam(), 24);
  struct Tensor {
    std::uintptr_t address;
    std::uint64_t bytes, value;
    bool wanted = true, lost = false;
  };
  std::mt19937 random(GetParam());
  std::vector<Tensor> live, dead;
  std::uintptr_t next = engine->arena();
  const auto set = [&](std::uintptr_t address, std::uint64_t bytes, std::uint64_t value) {
    gpu->launch(stream, {{address, bytes}},
                [=] { std::fill_n(reinterpret_cast<std::uint64_t*>(address), bytes / 8, value); });
  };
  const auto remake = [&](Tensor& t) {
    engine->tick();
    ASSERT_TRUE(engine->on_allocate(at(kScratch), t.bytes));
    set(at(kScratch), t.bytes, t.value);
    engine->refill(t.address, t.bytes, words(kScratch));
    engine->on_free(at(kScratch), t.bytes, true);
    t.lost = false;
  };
  for (int op = 0; op < 800; ++op) {
    engine->tick();
    if (live.size() < 12 && random() % 3 != 0) {
      Tensor t{next, (1 + random() % 6) * kHalf, random()};
      if (!dead.empty() && random() % 2 == 0) {
        t.address = dead.back().address, t.bytes = dead.back().bytes;
        dead.pop_back();
      } else if (next + 4 * kUnit < at(kScratch)) {
        next += t.bytes;
      } else {
        continue;
      }
      ASSERT_TRUE(engine->on_allocate(t.address, t.bytes));
      set(t.address, t.bytes, t.value);
      live.push_back(t);
      continue;
    }
    if (live.empty()) continue;
    const auto t = live.begin() + static_cast<std::ptrdiff_t>(random() % live.size());
    switch (random() % 7) {
      case 0:
        if (t->wanted) engine->demote(t->address, t->bytes);
        t->wanted = false;
        break;
      case 1:
        if (!t->wanted) engine->promote(t->address, t->bytes);
        t->wanted = true;
        break;
      case 2:
        engine->on_free(t->address, t->bytes, t->wanted);
        dead.push_back(*t);
        live.erase(t);
        break;
      case 3:
      case 4: {
        const Engine::Ends ends{.first = random() % 2 == 0, .last = random() % 2 == 0};
        if (!t->lost) t->lost = engine->discard(t->address, t->bytes, ends) != 0;
        break;
      }
      case 5:
        if (t->lost && random() % 4 == 0) {
          engine->overwrite(t->address, t->bytes);
          engine->await(t->address, t->bytes);
          t->lost = false, t->value = random();
          set(t->address, t->bytes, t->value);
        }
        break;
      default:
        if (t->lost) remake(*t);
        engine->tick();
        engine->await(t->address, t->bytes);
        gpu->launch(stream, {{t->address, t->bytes}}, [this, t = *t] {
          auto* words = reinterpret_cast<std::uint64_t*>(t.address);
          for (std::uint64_t i = 0; i < t.bytes / 8; ++i) wrong += words[i]++ != t.value;
        });
        ++t->value;
    }
  }
  gpu->finish();
  EXPECT_EQ(wrong, 0u);
  const auto counters = engine->counters();
  EXPECT_GT(counters.discarded_bytes, 20 * kUnit);
  EXPECT_GT(counters.refilled_bytes, 10 * kUnit);
  EXPECT_LE(counters.peak_bytes, 24 * kUnit);
}

}  // namespace
}  // namespace sentinel::gpu
