#include "execute/frame_engine.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "base/units.h"
#include "execute/limits.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kArena = 256_MiB;

struct Mode {
  const char* name;
  bool use_move;
  IoBackend io;
};

// Every mechanism and every fallback passes the same tests.
class EngineTest : public ::testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    try {
      FaultLoop::open();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    engine = std::make_unique<FrameEngine>(options());
  }

  EngineOptions options() const {
    return {.slow_directory = "/var/tmp",
            .io = GetParam().io,
            .use_move = GetParam().use_move,
            .arena_bytes = kArena};
  }

  std::uint64_t* words(std::uint64_t block) {
    return reinterpret_cast<std::uint64_t*>(engine->arena() + block * kGranule);
  }
  static std::uint64_t value(std::uint64_t block, std::uint64_t i) { return block * 1000003 + i; }

  void fill(std::uint64_t block) {
    for (std::uint64_t i = 0; i < kGranule / 8; ++i) words(block)[i] = value(block, i);
  }
  bool intact(std::uint64_t block) {
    for (std::uint64_t i = 0; i < kGranule / 8; ++i)
      if (words(block)[i] != value(block, i)) return false;
    return true;
  }
  void occupy(std::uint64_t block) { engine->occupy(engine->arena() + block * kGranule, kGranule); }
  std::uintptr_t at(std::uint64_t block) { return engine->arena() + block * kGranule; }

  std::unique_ptr<FrameEngine> engine;
};

INSTANTIATE_TEST_SUITE_P(Mechanisms, EngineTest,
                         ::testing::Values(Mode{"MoveUring", true, IoBackend::uring},
                                           Mode{"MoveThreads", true, IoBackend::threads},
                                           Mode{"CopyUring", false, IoBackend::uring},
                                           Mode{"CopyThreads", false, IoBackend::threads}),
                         [](const auto& info) { return info.param.name; });

TEST_P(EngineTest, KeepsContentsWithinABudgetByDemandAlone) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 60; ++b) occupy(b), fill(b), engine->tick();
  for (int pass = 0; pass < 2; ++pass)
    for (std::uint64_t b = 0; b < 60; ++b) ASSERT_TRUE(intact(b)) << b;
  EXPECT_LE(engine->counters().peak_bytes, 20 * kGranule);
  EXPECT_GT(engine->counters().demand_faults, 0u);
}

TEST_P(EngineTest, ShrinkingTheBudgetMovesOutWhatIsOver) {
  for (std::uint64_t b = 0; b < 50; ++b) occupy(b), fill(b);
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 50; ++b) ASSERT_TRUE(intact(b)) << b;
  EXPECT_LE(engine->counters().peak_bytes, 20 * kGranule);
}

TEST_P(EngineTest, DemotedComesBackOnPromoteWithoutAFault) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 4; ++b) occupy(b), fill(b);
  engine->tick();  // what the op that runs uses is not taken from it
  usleep(50000);   // the last block's arrival has been noted
  engine->demote(at(0), 4 * kGranule);
  while (engine->counters().demoted_bytes < 4 * kGranule) usleep(1000);
  engine->promote(at(0), 4 * kGranule);
  engine->await(at(0), 4 * kGranule);
  const auto faults = engine->counters().demand_faults;
  for (std::uint64_t b = 0; b < 4; ++b) EXPECT_TRUE(intact(b));
  EXPECT_EQ(engine->counters().demand_faults, faults);
  EXPECT_EQ(engine->counters().promoted_bytes, 4 * kGranule);
}

// What is given up stays until its frames are wanted, and leaves before what the plan wants.
TEST_P(EngineTest, ReleasedLeavesWhenItsSpaceIsWanted) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 12; ++b) occupy(b), fill(b);
  engine->tick();
  usleep(50000);
  engine->release(at(6), 6 * kGranule);  // the younger ones
  usleep(50000);
  EXPECT_EQ(engine->counters().demoted_bytes, 0u);
  for (std::uint64_t b = 20; b < 34; ++b) occupy(b), fill(b), engine->tick();
  const auto faults = engine->counters().demand_faults;
  for (std::uint64_t b = 0; b < 6; ++b) EXPECT_TRUE(intact(b)) << b;
  EXPECT_EQ(engine->counters().demand_faults, faults);
  EXPECT_GE(engine->counters().demoted_bytes, 6 * kGranule);
  engine->promote(at(6), 6 * kGranule);
  for (std::uint64_t b = 6; b < 12; ++b) EXPECT_TRUE(intact(b)) << b;
}

TEST_P(EngineTest, WritesWhileABlockLeavesAreNotLost) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 8; ++b) occupy(b), fill(b);
  for (std::uint64_t round = 1; round <= 200; ++round) {
    const auto block = round % 8;
    engine->demote(at(block), kGranule);
    words(block)[round] = ~round;
    engine->promote(at(block), kGranule);
    ASSERT_EQ(words(block)[round], ~round);
    words(block)[round] = value(block, round);
  }
  for (std::uint64_t b = 0; b < 8; ++b) EXPECT_TRUE(intact(b));
}

TEST_P(EngineTest, DeadBlocksAreNotWrittenOut) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t round = 0; round < 100; ++round) {
    occupy(round);
    words(round)[0] = round;
    engine->vacate(at(round), kGranule, true);
  }
  EXPECT_EQ(engine->counters().demoted_bytes, 0u);
}

TEST_P(EngineTest, ZerosAreNotWrittenOut) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 60; ++b) {
    occupy(b);
    std::memset(words(b), 0, kGranule);
    if (b % 10 == 0) words(b)[kGranule / 8 - 1] = b + 1;
    engine->tick();
  }
  const auto all_zero_but_last = [&](std::uint64_t b) {
    return std::all_of(words(b), words(b) + kGranule / 8 - 1, [](auto w) { return w == 0; });
  };
  for (std::uint64_t b = 0; b < 60; ++b) {
    EXPECT_TRUE(all_zero_but_last(b)) << b;
    EXPECT_EQ(words(b)[kGranule / 8 - 1], b % 10 == 0 ? b + 1 : 0) << b;
    engine->tick();
  }
  EXPECT_LE(engine->counters().demoted_bytes, 12 * kGranule);
  for (std::uint64_t b = 0; b < 60; ++b) fill(b), engine->tick();
  engine->before_fork();
  const pid_t child = fork();
  if (child == 0) {
    engine->after_fork_in_child();
    _exit(intact(0) && intact(59) ? 0 : 1);
  }
  engine->after_fork_in_parent();
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (std::uint64_t b = 0; b < 60; ++b) EXPECT_TRUE(intact(b)) << b;
}

// A child finds zeros that the parent had put out, whatever the parent writes there since.
TEST_P(EngineTest, AChildSeesZerosThatWereMovedOut) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 60; ++b) occupy(b), std::memset(words(b), 0, kGranule);
  engine->before_fork();
  const pid_t child = fork();
  if (child == 0) {
    engine->after_fork_in_child();
    usleep(100000);
    bool zeros = true;
    for (std::uint64_t b = 0; b < 60; ++b)
      zeros = zeros && words(b)[0] == 0 && words(b)[kGranule / 8 - 1] == 0;
    _exit(zeros ? 0 : 1);
  }
  engine->after_fork_in_parent();
  for (std::uint64_t b = 0; b < 60; ++b) fill(b);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (std::uint64_t b = 0; b < 60; ++b) EXPECT_TRUE(intact(b)) << b;
}

// What an op overwrites whole is not fetched for it; what shares its first and last block is.
TEST_P(EngineTest, WhatIsOverwrittenIsNotFetched) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 60; ++b) occupy(b), fill(b), engine->tick();
  engine->occupy(at(0), kGranule);  // another tensor, in a block that is shared
  engine->demote(at(0), kGranule);
  engine->demote(at(0), 8 * kGranule);
  while (engine->counters().demoted_bytes < 40 * kGranule) usleep(1000);
  usleep(50000);
  const auto before = engine->counters();
  engine->tick();
  engine->overwrite(at(0), 3 * kGranule);
  engine->promote(at(0), 8 * kGranule);
  for (std::uint64_t b = 1; b < 3; ++b)
    for (std::uint64_t i = 0; i < kGranule / 8; ++i) words(b)[i] = ~value(b, i);
  for (std::uint64_t b : {0u, 3u, 4u, 7u}) EXPECT_TRUE(intact(b)) << b;
  EXPECT_LE(engine->counters().promoted_bytes - before.promoted_bytes, 6 * kGranule);
  engine->tick();
  for (std::uint64_t b = 1; b < 3; ++b)
    for (std::uint64_t i = 0; i < kGranule / 8; ++i) ASSERT_EQ(words(b)[i], ~value(b, i));
}

// Overwriting again and again while blocks leave and come: what was written last is there.
TEST_P(EngineTest, OverwritingWhileBlocksLeaveLosesNothing) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 24; ++b) occupy(b), fill(b);
  std::vector<std::uint64_t> last(24);
  for (std::uint64_t b = 0; b < 24; ++b) last[b] = value(b, 0);
  for (std::uint64_t round = 1; round <= 600; ++round) {
    const auto b = round * 7 % 24;
    engine->tick();
    engine->demote(at(b), kGranule);
    if (round % 3 != 0) usleep(200 * (round % 5));
    ASSERT_TRUE(round % 2 == 0 || words(b)[0] == last[b]) << round;
    engine->overwrite(at(b), kGranule);
    engine->promote(at(b), kGranule);
    words(b)[0] = words(b)[kGranule / 8 - 1] = last[b] = round;
    const auto other = (round * 5 + 3) % 24;
    ASSERT_EQ(words(other)[0], last[other]) << round;
  }
}

// A block that nothing lives in is being taken away while a new tensor begins to be written there.
TEST_P(EngineTest, ATensorBornInALeavingBlockIsNotLost) {
  engine->set_budget(20 * kGranule);
  std::vector<std::uint64_t> born(20, ~0ull);
  for (std::uint64_t round = 0; round < 3000; ++round) {
    const auto block = round * 7 % 20;
    if (born[block] != ~0ull) {
      ASSERT_EQ(words(block)[0], born[block]) << round;
      engine->vacate(at(block), kGranule, true);
    }
    occupy(block);
    words(block)[0] = born[block] = round;
  }
  EXPECT_GT(engine->counters().peak_bytes, 0u);
}

// The budget is used up by the dead: their frames become the newborns' without a fault.
TEST_P(EngineTest, NewbornsGetTheFramesOfTheDead) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 20; ++b) occupy(b), fill(b);
  for (std::uint64_t b = 0; b < 20; ++b) engine->vacate(at(b), kGranule, true);
  usleep(100000);  // what the demoter has begun to free is free
  const auto before = engine->loop()->faults();
  for (std::uint64_t b = 40; b < 60; ++b) occupy(b), fill(b);
  EXPECT_EQ(engine->loop()->faults(), before);
  for (std::uint64_t b = 40; b < 60; ++b) EXPECT_TRUE(intact(b));
  EXPECT_EQ(engine->counters().demoted_bytes, 0u);
}

// A dead block is taken for one thread's newborn while the other thread's is born in it.
TEST_P(EngineTest, ThreadsTakeEachOthersDeadBlocks) {
  engine->set_budget(24 * kGranule);
  const auto live = [&](std::uint64_t parity) {
    std::mt19937_64 random(parity);
    std::vector<std::uint64_t> born(40, ~0ull);
    for (std::uint64_t round = 0; round < 4000; ++round) {
      const auto mine = random() % born.size();
      const auto block = 2 * mine + parity;
      if (born[mine] != ~0ull) {
        ASSERT_EQ(words(block)[0], born[mine]) << block;
        ASSERT_EQ(words(block)[kGranule / 8 - 1], born[mine]) << block;
        engine->vacate(at(block), kGranule, true);
        born[mine] = ~0ull;
      } else if (std::ranges::count_if(born, [](auto v) { return v != ~0ull; }) < 9) {
        occupy(block);
        words(block)[0] = words(block)[kGranule / 8 - 1] = born[mine] = round;
      }
    }
  };
  std::thread other([&] { live(1); });
  live(0);
  other.join();
}

TEST_P(EngineTest, SeveralThreadsShareASmallBudget) {
  engine->set_budget(FrameEngine::minimum_bytes(4, 8));
  for (std::uint64_t b = 0; b < 80; ++b) occupy(b);
  std::vector<std::thread> threads;
  std::atomic<int> bad = 0;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t b = t; b < 80; b += 4) fill(b);
      for (std::uint64_t b = t; b < 80; b += 4) bad += !intact(b);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(bad, 0);
}

TEST_P(EngineTest, CountingAndBackKeepsContentsAndAddresses) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 40; ++b) occupy(b), fill(b);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(engine->start_counting(), 0);
    for (std::uint64_t b = 0; b < 40; ++b) ASSERT_TRUE(intact(b)) << b;
    words(7)[9] = 1;
    words(7)[9] = value(7, 9);
    ASSERT_EQ(engine->stop_counting(), 0);
    for (std::uint64_t b = 0; b < 40; ++b) ASSERT_TRUE(intact(b)) << b;
  }
  EXPECT_LE(engine->counters().peak_bytes, 21 * kGranule);
}

TEST_P(EngineTest, SwitchesWhileOtherThreadsUseTheArena) {
  for (std::uint64_t b = 0; b < 8; ++b) occupy(b), fill(b);
  std::atomic<bool> stop = false;
  std::atomic<int> bad = 0;
  std::thread reader([&] {
    while (!stop)
      for (std::uint64_t b = 0; b < 8; ++b) bad += !intact(b);
  });
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(engine->start_counting(), 0);
    ASSERT_EQ(engine->stop_counting(), 0);
  }
  stop = true;
  reader.join();
  EXPECT_EQ(bad, 0);
}

TEST_P(EngineTest, AChildSeesWhatWasMovedOutAsItWas) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 40; ++b) occupy(b), fill(b);
  engine->before_fork();
  const pid_t child = fork();
  if (child == 0) {
    engine->after_fork_in_child();
    usleep(100000);  // the parent goes on meanwhile
    bool good = true;
    for (std::uint64_t b = 0; b < 40; ++b) good = good && intact(b);
    _exit(good ? 0 : 1);
  }
  engine->after_fork_in_parent();
  for (int pass = 0; pass < 3; ++pass)
    for (std::uint64_t b = 0; b < 40; ++b) words(b)[pass] = ~0ull;
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (std::uint64_t b = 0; b < 40; ++b) EXPECT_EQ(words(b)[0], ~0ull);
}

void use_more_than_fits(const EngineOptions& options) {
  FrameEngine engine(options);
  engine.set_budget(20 * kGranule);
  for (int pass = 0; pass < 2; ++pass)
    for (std::uint64_t b = 0; b < 60; ++b) {
      if (pass == 0) engine.occupy(engine.arena() + b * kGranule, kGranule);
      *reinterpret_cast<std::uint64_t*>(engine.arena() + b * kGranule) = b;
    }
  _exit(0);
}

TEST_P(EngineTest, AFailingDiskStopsTraining) {
  engine.reset();
  for (const char* inject : {"write:3:EIO", "read:2:EIO", "write:1:ENOSPC"}) {
    auto failing = options();
    failing.inject = inject;
    EXPECT_EXIT(use_more_than_fits(failing), ::testing::ExitedWithCode(125), "training stopped")
        << inject;
  }
}

// As a normalization's backward pass does: one op goes over all blocks again and again, and uses a
// page of each image every time.
class StridingTest : public EngineTest {
 protected:
  static constexpr std::uint64_t kImage = 256_KiB, kPlane = 4_KiB;
  static constexpr std::size_t kDepth = 8;
  const std::uint64_t kBudget = FrameEngine::minimum_bytes(thread_count(), kDepth) / kGranule + 28;
  const std::uint64_t kBlocks = kBudget + 16;

  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    if (kBlocks * kGranule > kArena) GTEST_SKIP() << "too many processors for the test's arena";
    if (!engine->loop()->can_protect()) GTEST_SKIP() << "this kernel has no write protection";
    engine->set_budget(kBudget * kGranule);
    for (std::uint64_t b = 0; b < kBlocks; ++b) occupy(b), fill(b), engine->tick();
  }

  // Calls f(block, word) for the first word of each of the sweep's planes.
  template <class F>
  void sweep(std::uint64_t plane, F&& f) {
    for (std::uint64_t b = 0; b < kBlocks; ++b)
      for (std::uint64_t at = plane * kPlane; at < kGranule; at += kImage) f(b, at / 8);
  }
  void TearDown() override {
    if (engine == nullptr || IsSkipped()) return;
    EXPECT_GT(engine->counters().pieces, 0u);
  }

  bool sweeps_are_right(std::uint64_t count) {
    bool right = true;
    for (std::uint64_t plane = 0; plane < count; ++plane)
      sweep(plane, [&](auto b, auto i) { right = right && words(b)[i] == value(b, i); });
    return right;
  }
};

INSTANTIATE_TEST_SUITE_P(Mechanisms, StridingTest,
                         ::testing::Values(Mode{"MoveUring", true, IoBackend::uring},
                                           Mode{"MoveThreads", true, IoBackend::threads},
                                           Mode{"CopyUring", false, IoBackend::uring}),
                         [](const auto& info) { return info.param.name; });

TEST_P(StridingTest, PiecesAreReadInsteadOfBlocks) {
  const auto before = engine->counters();
  EXPECT_TRUE(sweeps_are_right(64));
  const auto after = engine->counters();
  const auto least = 64 * (kBlocks - kBudget) * kGranule;  // if blocks were exchanged in each sweep
  EXPECT_LT(after.promoted_bytes - before.promoted_bytes, least / 4);
  EXPECT_LE(after.peak_bytes, kBudget * kGranule);
  engine->tick();
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(intact(b)) << b;
}

TEST_P(StridingTest, OneTransferAtATimeIsEnough) {
  auto shallow = options();
  shallow.depth = 1;
  engine = std::make_unique<FrameEngine>(shallow);
  engine->set_budget(kBudget * kGranule);
  for (std::uint64_t b = 0; b < kBlocks; ++b) occupy(b), fill(b), engine->tick();
  EXPECT_TRUE(sweeps_are_right(64));
}

TEST_P(StridingTest, WhatIsWrittenInAPieceIsKept) {
  const auto written = [](auto b, auto plane) { return (b + plane) % 31 == 0; };
  for (std::uint64_t plane = 0; plane < 20; ++plane)
    sweep(plane, [&](auto b, auto i) {
      ASSERT_EQ(words(b)[i], value(b, i));
      if (written(b, plane)) words(b)[i] = ~value(b, i);
    });
  engine->tick();
  for (std::uint64_t plane = 0; plane < 20; ++plane)
    sweep(plane, [&](auto b, auto i) {
      ASSERT_EQ(words(b)[i], written(b, plane) ? ~value(b, i) : value(b, i));
      if (written(b, plane)) words(b)[i] = value(b, i);
    });
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(intact(b)) << b;
}

TEST_P(StridingTest, ThreadsReadAndWriteThemSideBySide) {
  std::atomic<int> bad = 0;
  const auto work = [&](std::uint64_t first) {  // planes of its own
    for (std::uint64_t plane = first; plane < 64; plane += 2)
      for (std::uint64_t b = 0; b < kBlocks; ++b)
        for (std::uint64_t at = plane * kPlane; at < kGranule; at += kImage) {
          bad += words(b)[at / 8] != value(b, at / 8);
          if (b % 5 == first) words(b)[at / 8] = value(b, at / 8) + 1;
          if (b % 5 == first) words(b)[at / 8] -= 1;
        }
  };
  std::thread other([&] { work(1); });
  work(0);
  other.join();
  EXPECT_EQ(bad, 0);
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(intact(b)) << b;
}

TEST_P(StridingTest, PiecesGoWithTheirTensor) {
  EXPECT_TRUE(sweeps_are_right(9));
  for (std::uint64_t b = 0; b < kBlocks; ++b) engine->vacate(at(b), kGranule, true);
  for (std::uint64_t b = 0; b < kBlocks; ++b) occupy(b), words(b)[1] = b;
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_EQ(words(b)[1], b);
}

TEST_P(StridingTest, CountingFindsBlocksWithPiecesAsTheyWere) {
  EXPECT_TRUE(sweeps_are_right(9));
  ASSERT_EQ(engine->start_counting(), 0);
  EXPECT_TRUE(sweeps_are_right(3));
  ASSERT_EQ(engine->stop_counting(), 0);
  EXPECT_TRUE(sweeps_are_right(20));
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(intact(b)) << b;
}

TEST_P(StridingTest, AChildFindsBlocksWithPiecesAsTheyWere) {
  EXPECT_TRUE(sweeps_are_right(9));
  engine->before_fork();
  const pid_t child = fork();
  if (child == 0) {
    engine->after_fork_in_child();
    bool good = true;
    for (std::uint64_t b = 0; b < kBlocks; ++b) good = good && intact(b);
    _exit(good ? 0 : 1);
  }
  engine->after_fork_in_parent();
  EXPECT_TRUE(sweeps_are_right(20));
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(intact(b)) << b;
}

TEST_P(StridingTest, AFailingDiskStopsTrainingInAPieceToo) {
  engine.reset();
  const auto stride = [&] {
    auto failing = options();
    failing.inject = "read:500:EIO";  // more than there are reads of whole blocks
    engine = std::make_unique<FrameEngine>(failing);
    engine->set_budget(kBudget * kGranule);
    for (std::uint64_t b = 0; b < kBlocks; ++b) occupy(b), fill(b), engine->tick();
    _exit(sweeps_are_right(64) ? 0 : 1);
  };
  EXPECT_EXIT(stride(), ::testing::ExitedWithCode(125), "could not read a part of a tensor back");
}

TEST_P(StridingTest, ABlockThatIsPromotedTakesThePlaceOfItsPieces) {
  EXPECT_TRUE(sweeps_are_right(9));
  engine->tick();
  for (std::uint64_t b = 0; b < 20; ++b) engine->demote(at(b), kGranule);
  for (std::uint64_t b = 0; b < 20; ++b) engine->promote(at(b), kGranule);
  engine->await(at(0), 20 * kGranule);
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(intact(b)) << b;
}

TEST(SlowFileTest, RefusesATmpfsAndAMissingDirectory) {
  EXPECT_THROW(SlowFile({.directory = "/dev/shm", .frame_bytes = kGranule}), Error);
  EXPECT_THROW(SlowFile({.directory = "/nowhere", .frame_bytes = kGranule}), Error);
  EXPECT_THROW(SlowFile({.directory = "/var/tmp", .frame_bytes = kGranule, .need_bytes = ~0ull}),
               Error);
}

}  // namespace
}  // namespace sentinel
