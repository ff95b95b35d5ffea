#include "engine/ssd/ssd_engine.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <random>
#include <thread>
#include <utility>

#include "engine/host/limits.h"
#include "unit/engine/ssd/ssd_engine_fixture.h"

namespace sentinel {
namespace {

INSTANTIATE_TEST_SUITE_P(Mechanisms, EngineTest,
                         ::testing::Values(Mode{"MoveUring", true, IoBackend::uring},
                                           Mode{"MoveThreads", true, IoBackend::threads},
                                           Mode{"CopyUring", false, IoBackend::uring},
                                           Mode{"CopyThreads", false, IoBackend::threads},
                                           Mode{"Bars", true, IoBackend::uring, true}),
                         [](const auto& info) { return info.param.name; });

TEST_P(EngineTest, KeepsContentsWithinABudgetByDemandAlone) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 60; ++b) on_allocate(b), fill(b), engine->tick();
  for (int pass = 0; pass < 2; ++pass)
    for (std::uint64_t b = 0; b < 60; ++b) ASSERT_TRUE(intact(b)) << b;
  EXPECT_LE(engine->counters().peak_bytes, 20 * kGranule);
  EXPECT_GT(engine->counters().demand_faults, 0u);
}

TEST_P(EngineTest, ShrinkingTheBudgetMovesOutWhatIsOver) {
  for (std::uint64_t b = 0; b < 50; ++b) on_allocate(b), fill(b);
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 50; ++b) ASSERT_TRUE(intact(b)) << b;
  EXPECT_LE(engine->counters().peak_bytes, 20 * kGranule);
}

TEST_P(EngineTest, DemotedComesBackOnPromoteWithoutAFault) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 4; ++b) on_allocate(b), fill(b);
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
  for (std::uint64_t b = 0; b < 12; ++b) on_allocate(b), fill(b);
  engine->tick();
  usleep(50000);
  engine->release(at(6), 6 * kGranule);  // the younger ones
  usleep(50000);
  EXPECT_EQ(engine->counters().demoted_bytes, 0u);
  for (std::uint64_t b = 20; b < 34; ++b) on_allocate(b), fill(b), engine->tick();
  const auto faults = engine->counters().demand_faults;
  for (std::uint64_t b = 0; b < 6; ++b) EXPECT_TRUE(intact(b)) << b;
  EXPECT_EQ(engine->counters().demand_faults, faults);
  EXPECT_GE(engine->counters().demoted_bytes, 6 * kGranule);
  engine->promote(at(6), 6 * kGranule);
  for (std::uint64_t b = 6; b < 12; ++b) EXPECT_TRUE(intact(b)) << b;
}

TEST_P(EngineTest, WritesWhileABlockLeavesAreNotLost) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 8; ++b) on_allocate(b), fill(b);
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
    on_allocate(round);
    words(round)[0] = round;
    engine->on_free(at(round), kGranule, true);
  }
  EXPECT_EQ(engine->counters().demoted_bytes, 0u);
}

// Within a used-up budget each birth takes the frame of what another thread's tensor, or its own,
// has left, at places where others have just died.
TEST_P(EngineTest, BirthsOfSeveralThreadsTakeWhatDied) {
  constexpr std::uint64_t kThreads = 3, kPlaces = 6, kAlive = 4;
  engine->set_budget(20 * kGranule);
  std::atomic<int> wrong = 0;
  const auto train = [&](std::uint64_t thread) {
    std::mt19937 random(static_cast<unsigned>(thread));
    std::deque<std::pair<std::uint64_t, std::uint64_t>> alive;  // place, mark
    for (std::uint64_t birth = 1; birth <= 600; ++birth) {
      auto place = thread * kPlaces + random() % kPlaces;
      while (std::ranges::find(alive, place, [](auto& a) { return a.first; }) != alive.end())
        place = thread * kPlaces + random() % kPlaces;
      on_allocate(place);
      for (const auto i : {std::uint64_t{0}, kGranule / 16, kGranule / 8 - 1})
        words(place)[i] = birth * kThreads + thread + i;
      alive.push_back({place, birth * kThreads + thread});
      if (alive.size() < kAlive) continue;
      const auto [gone, mark] = alive.front();
      for (const auto i : {std::uint64_t{0}, kGranule / 16, kGranule / 8 - 1})
        wrong += words(gone)[i] != mark + i;
      engine->on_free(at(gone), kGranule, true);
      alive.pop_front();
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) threads.emplace_back(train, t);
  for (std::uint64_t b = 60; b < 90; ++b) {  // and what uses the budget up
    on_allocate(b);
    fill(b);
    engine->on_free(at(b), kGranule, true);
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(engine->counters().peak_bytes, 20 * kGranule);
}

TEST_P(EngineTest, ZerosAreNotWrittenOut) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 60; ++b) {
    on_allocate(b);
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
  EXPECT_EQ(status_of_child([&] { return intact(0) && intact(59); }, [] {}), 0);
  for (std::uint64_t b = 0; b < 60; ++b) EXPECT_TRUE(intact(b)) << b;
}

// A child finds zeros that the parent had put out, whatever the parent writes there since.
TEST_P(EngineTest, AChildSeesZerosThatWereMovedOut) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 60; ++b) on_allocate(b), std::memset(words(b), 0, kGranule);
  const auto zeros = [&] {
    bool all = true;
    for (std::uint64_t b = 0; b < 60; ++b)
      all = all && words(b)[0] == 0 && words(b)[kGranule / 8 - 1] == 0;
    return all;
  };
  const auto write = [&] {
    for (std::uint64_t b = 0; b < 60; ++b) fill(b);
  };
  EXPECT_EQ(status_of_child(zeros, write), 0);
  for (std::uint64_t b = 0; b < 60; ++b) EXPECT_TRUE(intact(b)) << b;
}

// What an op overwrites whole is not fetched for it; what shares its first and last block is.
TEST_P(EngineTest, WhatIsOverwrittenIsNotFetched) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 60; ++b) on_allocate(b), fill(b), engine->tick();
  engine->on_allocate(at(0), kGranule);  // another tensor, in a block that is shared
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
  for (std::uint64_t b = 0; b < 24; ++b) on_allocate(b), fill(b);
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
      engine->on_free(at(block), kGranule, true);
    }
    on_allocate(block);
    words(block)[0] = born[block] = round;
  }
  EXPECT_GT(engine->counters().peak_bytes, 0u);
}

// The budget is used up by the dead: their frames become the newborns' without a fault.
TEST_P(EngineTest, NewbornsGetTheFramesOfTheDead) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 20; ++b) on_allocate(b), fill(b);
  for (std::uint64_t b = 0; b < 20; ++b) engine->on_free(at(b), kGranule, true);
  usleep(100000);  // what the demoter has begun to free is free
  const auto before = engine->loop()->faults();
  for (std::uint64_t b = 40; b < 60; ++b) on_allocate(b), fill(b);
  EXPECT_EQ(engine->loop()->faults(), before);
  for (std::uint64_t b = 40; b < 60; ++b) EXPECT_TRUE(intact(b));
  EXPECT_EQ(engine->counters().demoted_bytes, 0u);
}

// Of an op that streams: a library's scratch memory, say, born where another's has just died.
TEST_P(EngineTest, WhatAnOpHasFoundLeavesBeforeWhatItMakes) {
  const auto least = SsdEngine::minimum_bytes(thread_count(), 8) / kGranule;
  constexpr std::uint64_t kMade = 8, kAbsent = 8;
  const auto budget = least + kMade + 2 * kAbsent;
  if ((budget + kAbsent) * kGranule > kArena) GTEST_SKIP() << "too many processors for the arena";
  engine->set_budget(budget * kGranule);
  for (std::uint64_t b = 0; b < budget + kAbsent; ++b) on_allocate(b), fill(b), engine->tick();
  const auto made = budget - kMade;
  for (auto b = made; b < budget; ++b) engine->on_free(at(b), kGranule, true);
  for (std::uint64_t b = 0; b < budget + kAbsent; ++b)
    if (b < made || b >= budget) engine->touch(at(b), kGranule);
  for (auto b = made; b < budget; ++b) on_allocate(b), words(b)[0] = b;
  for (std::uint64_t b = 0; b < kAbsent; ++b) EXPECT_TRUE(intact(b)) << b;
  const auto before = engine->counters().demand_faults;
  for (auto b = made; b < budget; ++b) EXPECT_EQ(words(b)[0], b);
  EXPECT_EQ(engine->counters().demand_faults, before);
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
        engine->on_free(at(block), kGranule, true);
        born[mine] = ~0ull;
      } else if (std::ranges::count_if(born, [](auto v) { return v != ~0ull; }) < 9) {
        on_allocate(block);
        words(block)[0] = words(block)[kGranule / 8 - 1] = born[mine] = round;
      }
    }
  };
  std::thread other([&] { live(1); });
  live(0);
  other.join();
}

TEST_P(EngineTest, SeveralThreadsShareASmallBudget) {
  engine->set_budget(SsdEngine::minimum_bytes(4, 8));
  for (std::uint64_t b = 0; b < 80; ++b) on_allocate(b);
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

TEST_P(EngineTest, TheSmallestBudgetStopsGrowingWithTheThreads) {
  EXPECT_EQ(SsdEngine::minimum_bytes(1, 8), 24_MiB);
  EXPECT_EQ(SsdEngine::minimum_bytes(2, 8), 32_MiB);
  EXPECT_EQ(SsdEngine::minimum_bytes(6, 8), 64_MiB);
  EXPECT_EQ(SsdEngine::minimum_bytes(64, 8), 64_MiB);
}

// Each instruction copies from one boundary of blocks to another, so it needs four blocks at once:
// together the threads need three times the budget.
TEST_P(EngineTest, ManyThreadsTakeTurns) {
  constexpr std::uint64_t kThreads = 24, kRounds = 4, kBytes = 8;
  engine->set_budget(SsdEngine::minimum_bytes(64, 8));
  for (std::uint64_t b = 0; b < 4 * kThreads; ++b) on_allocate(b), words(b)[0] = b, engine->tick();
  const auto boundary = [&](std::uint64_t block) {
    return reinterpret_cast<char*>(words(block)) + kGranule - kBytes / 2;
  };
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> waiting = kThreads * kRounds;
  std::atomic<int> bad = 0;
  for (std::uint64_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t round = 1; round <= kRounds; ++round) {
        const auto expected = round * kThreads + t;
        std::memcpy(boundary(4 * t), &expected, kBytes);
        --waiting;
        while (waiting > kThreads * (kRounds - round)) std::this_thread::yield();
        const void* from = boundary(4 * t);
        void* to = boundary(4 * t + 2);
        asm volatile("movsq" : "+S"(from), "+D"(to) : : "memory");
        std::uint64_t found = 0;
        std::memcpy(&found, boundary(4 * t + 2), kBytes);
        bad += found != expected;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(bad, 0);
}

TEST_P(EngineTest, CountingAndBackKeepsContentsAndAddresses) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 40; ++b) on_allocate(b), fill(b);
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
  for (std::uint64_t b = 0; b < 8; ++b) on_allocate(b), fill(b);
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
  for (std::uint64_t b = 0; b < 40; ++b) on_allocate(b), fill(b);
  const auto as_it_was = [&] {
    bool good = true;
    for (std::uint64_t b = 0; b < 40; ++b) good = good && intact(b);
    return good;
  };
  const auto write = [&] {
    for (int pass = 0; pass < 3; ++pass)
      for (std::uint64_t b = 0; b < 40; ++b) words(b)[pass] = ~0ull;
  };
  EXPECT_EQ(status_of_child(as_it_was, write), 0);
  for (std::uint64_t b = 0; b < 40; ++b) EXPECT_EQ(words(b)[0], ~0ull);
}

void use_more_than_fits(const EngineOptions& options) {
  SsdEngine engine(options);
  engine.set_budget(20 * kGranule);
  for (int pass = 0; pass < 2; ++pass)
    for (std::uint64_t b = 0; b < 60; ++b) {
      if (pass == 0) engine.on_allocate(engine.arena() + b * kGranule, kGranule);
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

TEST_P(EngineTest, WhatStopsTrainingNamesItsFolderInALine) {
  engine.reset();
  std::string parent = "/var/tmp/sentinel-test.XXXXXX";
  ASSERT_NE(mkdtemp(parent.data()), nullptr);
  const std::string folder = parent + "/sentinel-\x1b[31m-\n-test";
  std::filesystem::create_directory(folder);
  auto failing = options();
  failing.inject = "write:3:EIO";
  failing.slow_directory = folder;
  EXPECT_EXIT(use_more_than_fits(failing), ::testing::ExitedWithCode(125),
              "sentinel-\\\\x1b\\[31m-\\\\x0a-test\\)");
  std::filesystem::remove_all(parent);
}

// Of this process: the numbers by which the kernel's guards of memory are known.
std::vector<int> userfaultfds() {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone).string().find("[userfaultfd]") !=
        std::string::npos)
      found.push_back(std::stoi(entry.path().filename()));
  }
  return found;
}

// As a program may that closes what it did not open: the number is nobody's, or a file's.
void shrink_without_a_guard(const EngineOptions& options, bool reused) {
  SsdEngine engine(options);
  engine.set_budget(80 * kGranule);
  for (std::uint64_t b = 0; b < 60; ++b) {
    engine.on_allocate(engine.arena() + b * kGranule, kGranule);
    *reinterpret_cast<std::uint64_t*>(engine.arena() + b * kGranule) = b;
    engine.tick();
  }
  const int file = open("/dev/null", O_RDWR);
  for (const int number : userfaultfds()) reused ? dup2(file, number) : close(number);
  alarm(8);
  engine.set_budget(20 * kGranule);
  _exit(0);
}

// Nobody waits in a fault: that blocks cannot be taken has to be noticed by itself.
TEST_P(EngineTest, BlocksThatCannotBeTakenWithoutAGuardStopTraining) {
  engine.reset();
  for (const bool reused : {false, true})
    EXPECT_EXIT(shrink_without_a_guard(options(), reused), ::testing::ExitedWithCode(125),
                "this program has closed")
        << reused;
}

// While pages are counted their memory is shared with a child: it gets none, and that is told once.
TEST_P(EngineTest, AChildThatCannotBeServedIsToldOfAndHasNoArena) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 40; ++b) on_allocate(b), fill(b);
  ASSERT_EQ(engine->start_counting(), 0);
  testing::internal::CaptureStderr();
  for (int times = 0; times < 2; ++times) {
    const int status = status_of_child(
        [&] {
          std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would exit
          return intact(0);
        },
        [] {});
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
    EXPECT_EQ(status_of_child([] { return true; }, [] {}), 0);
  }
  const auto told = testing::internal::GetCapturedStderr();
  const auto first = told.find("sentinel: a child is forked that cannot be given its parent's");
  ASSERT_NE(first, told.npos);
  EXPECT_THAT(told, ::testing::HasSubstr("ends where it touches a tensor"));
  EXPECT_EQ(told.find("a child is forked", first + 20), told.npos);
  ASSERT_EQ(engine->stop_counting(), 0);
  for (std::uint64_t b = 0; b < 40; ++b) EXPECT_TRUE(intact(b)) << b;
}

}  // namespace
}  // namespace sentinel
