// What begins where memory is short, and ops that go through more than fits.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/host/limits.h"
#include "unit/engine/ssd/ssd_engine_fixture.h"

namespace sentinel {
namespace {

class StreamingTest : public EngineTest {
 protected:
  const std::uint64_t kLeast = SsdEngine::minimum_bytes(thread_count(), 8) / kGranule;
  const std::uint64_t kBudget = kLeast + 24;

  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    if ((kBudget + 40) * kGranule > kArena)
      GTEST_SKIP() << "too many processors for the test's arena";
    engine->set_budget(kBudget * kGranule);
  }

  bool has_memory(std::uint64_t block) {
    unsigned char resident = 0;
    EXPECT_EQ(mincore(words(block), 4096, &resident), 0);
    return (resident & 1) != 0;
  }
  bool gets_memory(std::uint64_t block) {
    for (int tries = 0; tries < 500 && !has_memory(block); ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return has_memory(block);
  }
};

INSTANTIATE_TEST_SUITE_P(Mechanisms, StreamingTest,
                         ::testing::Values(Mode{"MoveUring", true, IoBackend::uring},
                                           Mode{"MoveThreads", true, IoBackend::threads},
                                           Mode{"CopyUring", false, IoBackend::uring}),
                         [](const auto& info) { return info.param.name; });

TEST_P(StreamingTest, WhatBeginsGetsFramesAsTheyComeFree) {
  for (std::uint64_t b = 0; b < kBudget; ++b) on_allocate(b), fill(b), engine->tick();
  for (std::uint64_t b = 0; b < 8; ++b) engine->demote(at(b), kGranule);
  for (auto b = kBudget; b < kBudget + 8; ++b) on_allocate(b);
  for (auto b = kBudget; b < kBudget + 8; ++b) EXPECT_TRUE(gets_memory(b)) << b;
  EXPECT_LE(engine->counters().held_bytes, kBudget * kGranule);
  for (std::uint64_t b = 0; b < kBudget; ++b) EXPECT_TRUE(intact(b)) << b;
}

TEST_P(StreamingTest, WhatBeginsInsteadOfTheDeadHasTheirMemory) {
  for (std::uint64_t b = 0; b < 16; ++b) on_allocate(b), fill(b);
  for (std::uint64_t b = 0; b < 16; ++b) engine->on_free(at(b), kGranule, true);
  engine->tick();
  for (std::uint64_t b = 0; b < 16; ++b) on_allocate(b);
  for (std::uint64_t b = 0; b < 16; ++b) EXPECT_TRUE(has_memory(b)) << b;
}

// It would be the first to leave otherwise, unwritten, and be read again to be written.
TEST_P(StreamingTest, WhatBeginsSideBySideGetsMemoryAsItIsTouched) {
  for (std::uint64_t b = 0; b < 16; ++b) on_allocate(b), fill(b);
  for (std::uint64_t b = 0; b < 16; ++b) engine->on_free(at(b), kGranule, true);
  engine->tick();
  engine->begin_oversized_op(1, true);
  for (std::uint64_t b = 0; b < 16; ++b) on_allocate(b);
  const auto with_memory = [&] {
    std::uint64_t count = 0;
    for (std::uint64_t b = 0; b < 16; ++b) count += has_memory(b);
    return count;
  };
  const auto kept = with_memory();
  EXPECT_LE(kept, 2u);  // a page that the kernel looks at just then stays where it is
  words(0)[0] = 1;
  EXPECT_TRUE(gets_memory(1));  // of what has frames at hand the next ones are not waited for
  EXPECT_LE(with_memory(), kept + 5);
  for (std::uint64_t b = 0; b < 16; ++b) fill(b);
  for (std::uint64_t b = 0; b < 16; ++b) EXPECT_TRUE(intact(b)) << b;
  engine->on_free(at(0), kGranule, true);
  engine->tick();  // only in that op
  on_allocate(0);
  EXPECT_TRUE(has_memory(0));
}

// It waits for no write then.
TEST_P(StreamingTest, AnOversizedOpFindsRoomFromItsBeginning) {
  constexpr std::uint64_t kUsed = 4;
  const auto room = std::min<std::uint64_t>(8, kBudget / 16);
  for (std::uint64_t b = 0; b < kBudget; ++b) on_allocate(b), fill(b), engine->tick();
  engine->touch(at(0), kUsed * kGranule);
  EXPECT_EQ(engine->counters().demoted_bytes, 0u);
  engine->begin_oversized_op(1, true);
  const auto left = [&] { return engine->counters().demoted_bytes / kGranule; };
  for (int tries = 0; tries < 500 && left() < room; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(left(), room);
  for (std::uint64_t b = 0; b < kUsed; ++b) EXPECT_TRUE(has_memory(b)) << b;
}

// From its end to its beginning, which nobody reads ahead unless it is known.
TEST_P(StreamingTest, TheOrderOfAnOversizedOpIsLearned) {
  constexpr std::uint64_t kUsed = 16;
  for (std::uint64_t b = 0; b < kBudget; ++b) on_allocate(b), fill(b), engine->tick();
  const auto step = [&](int patience) {
    const auto left = [&] { return engine->counters().demoted_bytes / kGranule; };
    const auto unwritten = [&] { return engine->counters().unwritten_bytes / kGranule; };
    engine->await(at(0), kUsed * kGranule);
    const auto gone = left() + unwritten() + kUsed;
    engine->demote(at(0), kUsed * kGranule);
    for (int tries = 0; tries < 500 && left() + unwritten() < gone; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    engine->tick();
    engine->begin_oversized_op(1, false);
    engine->touch(at(0), kUsed * kGranule);
    const auto before = engine->counters().demand_faults;
    for (auto b = kUsed; b-- != 0;) {
      EXPECT_TRUE(intact(b)) << b;
      for (int ms = 0; ms < patience && b != 0 && !has_memory(b - 1); ++ms)  // it computes
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    engine->tick();
    engine->promote(at(0), kUsed * kGranule);
    return engine->counters().demand_faults - before;
  };
  EXPECT_EQ(step(0), kUsed);
  std::uint64_t least = kUsed;
  for (int i = 0; i < 4; ++i) least = std::min(least, step(200));
  EXPECT_LE(least, kUsed / 2);
}

// What an op makes for itself is used again and dies without being written.
// But for one, where all that has not just come is on its way.
TEST_P(StreamingTest, WhatDiesInItsOpLeavesLast) {
  constexpr std::uint64_t kMade = 8;
  const auto found = kBudget + 24;
  for (std::uint64_t b = 0; b < found; ++b) on_allocate(b), fill(b), engine->tick();
  for (std::uint64_t b = 0; b < found; ++b) engine->touch(at(b), kGranule);
  for (auto b = found; b < found + kMade; ++b) {
    on_allocate(b);
    engine->transient(at(b), kGranule);
    words(b)[0] = b;
  }
  for (std::uint64_t b = 0; b < found; ++b) EXPECT_TRUE(intact(b)) << b;
  const auto before = engine->counters().demand_faults;
  for (auto b = found; b < found + kMade; ++b) EXPECT_EQ(words(b)[0], b);
  EXPECT_LE(engine->counters().demand_faults, before + 1);
}

// As a normalisation goes from channel to channel: what it has left behind makes room in the end.
TEST_P(StreamingTest, ALoopThatMovesOnComesToHaveItsBlocks) {
  constexpr std::uint64_t kLoop = 20;
  const auto before = kBudget + 16;
  for (std::uint64_t b = 0; b < before + kLoop; ++b) on_allocate(b), fill(b), engine->tick();
  for (int pass = 0; pass < 3; ++pass)
    for (std::uint64_t b = 0; b < before; ++b) ASSERT_TRUE(intact(b)) << b;
  const auto moves_on = [&](int passes) {
    const auto faults = engine->counters().demand_faults;
    for (int pass = 0; pass < passes; ++pass)
      for (auto b = before; b < before + kLoop; ++b) EXPECT_TRUE(intact(b)) << b;
    return engine->counters().demand_faults - faults;
  };
  moves_on(8);
  EXPECT_LT(moves_on(8), 2 * kLoop);
}

}  // namespace
}  // namespace sentinel
