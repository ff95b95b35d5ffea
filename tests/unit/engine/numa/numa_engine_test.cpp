#include "engine/numa/numa_engine.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <random>
#include <sstream>

#include "base/units.h"
#include "capture/userfault/rwp_source.h"
#include "engine/numa/numa_maps.h"
#include "runtime/step/trial.h"
#include "unit/capture/fake_rwp.h"
#include "unit/engine/numa/fake_nodes.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kArena = 256_MiB;
constexpr int kFast = 0, kSlow = 1;

struct Nodes {
  const char* name;
  std::uint64_t granule;
  bool kernel;  // the real thing, where there are two nodes
};

class NumaEngineTest : public ::testing::TestWithParam<Nodes> {
 protected:
  void SetUp() override {
    const bool kernel = GetParam().kernel;
    if (kernel && numa_nodes().size() < 2) GTEST_SKIP() << "this machine has one NUMA node";
    auto calls = kernel ? make_node_calls()
                        : std::unique_ptr<NodeCalls>(fake = new FakeNodes(granule() == kGranule));
    engine = std::make_unique<NumaEngine>(
        NumaEngineOptions{
            .nodes = {kFast, kSlow}, .granule_bytes = granule(), .arena_bytes = kArena},
        std::move(calls));
  }

  std::uint64_t granule() const { return GetParam().granule; }
  // A tensor is 2 MiB and begins with its number.
  std::uintptr_t at(std::uint64_t tensor) const { return engine->arena() + tensor * kTensor; }
  std::uint64_t* words(std::uint64_t tensor) {
    return reinterpret_cast<std::uint64_t*>(at(tensor));
  }
  bool born(std::uint64_t tensor) {
    const bool fast = engine->on_allocate(at(tensor), kTensor);
    for (std::uint64_t i = 0; i < kTensor / 8; ++i) words(tensor)[i] = tensor * 1000003 + i;
    return fast;
  }
  bool intact(std::uint64_t tensor) {
    for (std::uint64_t i = 0; i < kTensor / 8; ++i)
      if (std::atomic_ref(words(tensor)[i]).load(std::memory_order_relaxed) != tensor * 1000003 + i)
        return false;
    return true;
  }
  void dies(std::uint64_t tensor, bool wanted) { engine->on_free(at(tensor), kTensor, wanted); }
  void promote(std::uint64_t tensor) { engine->promote(at(tensor), kTensor); }
  void demote(std::uint64_t tensor) { engine->demote(at(tensor), kTensor); }
  void await(std::uint64_t tensor) { engine->await(at(tensor), kTensor); }
  Arrival arrival(std::uint64_t tensor) { return engine->arrival(at(tensor), kTensor); }
  std::uint64_t fast(std::uint64_t tensor) { return engine->fast_bytes(at(tensor), kTensor); }
  void demoted(std::uint64_t bytes) {
    while (engine->counters().demoted_bytes < bytes) usleep(1000);
    usleep(10000);
  }
  // By the account of whoever holds the memory.
  std::uint64_t bytes_in(int node) {
    if (fake != nullptr) return fake->bytes_in(node);
    return bytes_by_node(engine->arena(), engine->arena() + kArena)[node];
  }
  std::uint64_t cause(MoveCause cause) {
    return engine->counters().causes[static_cast<std::size_t>(cause)];
  }

  static constexpr std::uint64_t kTensor = 2_MiB;
  FakeNodes* fake = nullptr;  // the engine's
  std::unique_ptr<NumaEngine> engine;
};

INSTANTIATE_TEST_SUITE_P(Granules, NumaEngineTest,
                         ::testing::Values(Nodes{"Fake4K", 4_KiB, false},
                                           Nodes{"Fake2M", 2_MiB, false},
                                           Nodes{"Kernel4K", 4_KiB, true},
                                           Nodes{"Kernel2M", 2_MiB, true}),
                         [](const auto& info) { return info.param.name; });

TEST_P(NumaEngineTest, NothingIsInFastMemoryBeforeThereIsABudget) {
  EXPECT_FALSE(born(0));
  EXPECT_EQ(bytes_in(kFast), 0u);
  EXPECT_GE(bytes_in(kSlow), kTensor);
}

TEST_P(NumaEngineTest, TensorsAreBornInFastMemoryAsLongAsThereIsRoom) {
  engine->set_budget(3 * kTensor);
  for (std::uint64_t t = 0; t < 3; ++t) EXPECT_TRUE(born(t));
  EXPECT_FALSE(born(3));
  EXPECT_EQ(bytes_in(kFast), 3 * kTensor);
  EXPECT_EQ(engine->counters().peak_bytes, 3 * kTensor);
  EXPECT_EQ(engine->counters().promoted_bytes, 0u);  // from the start, not moved
}

TEST_P(NumaEngineTest, DemotedAndPromotedComesBackAsItWas) {
  engine->set_budget(4 * kTensor);
  for (std::uint64_t t = 0; t < 4; ++t) born(t);
  demote(0), demote(1);
  demoted(2 * kTensor);
  EXPECT_EQ(bytes_in(kFast), 2 * kTensor);
  EXPECT_EQ(fast(0), 0u);
  promote(0), promote(1);
  await(0), await(1);
  EXPECT_EQ(arrival(0), Arrival::in_time);
  EXPECT_EQ(bytes_in(kFast), 4 * kTensor);
  EXPECT_EQ(engine->counters().promoted_bytes, 2 * kTensor);
  EXPECT_EQ(engine->counters().demoted_bytes, 2 * kTensor);
  for (std::uint64_t t = 0; t < 4; ++t) EXPECT_TRUE(intact(t));
}

TEST_P(NumaEngineTest, DeadTensorsMakeRoomWithoutBeingMoved) {
  engine->set_budget(2 * kTensor);
  for (std::uint64_t t = 0; t < 20; ++t) {
    EXPECT_TRUE(born(t)) << t;
    dies(t, true);
    EXPECT_LE(bytes_in(kFast), 2 * kTensor);
  }
  EXPECT_EQ(engine->counters().demoted_bytes, 0u);
}

TEST_P(NumaEngineTest, ABirthDoesNotMakeRoomOfItsOwnGranules) {
  engine->set_budget(2 * kTensor);
  born(0), born(1);
  dies(0, true), dies(1, true);
  EXPECT_FALSE(
      engine->on_allocate(at(1), 3 * kTensor));  // the first of them is still in fast memory
  EXPECT_TRUE(engine->on_allocate(at(0), kTensor));
  EXPECT_LE(engine->counters().peak_bytes, 2 * kTensor);
}

TEST_P(NumaEngineTest, WhatDiedInSlowMemoryIsDroppedWhenItsAddressIsBornFast) {
  born(0);
  dies(0, false);
  engine->set_budget(kTensor);
  EXPECT_TRUE(born(0));
  EXPECT_EQ(bytes_in(kFast), kTensor);
  EXPECT_EQ(engine->counters().promoted_bytes, 0u);
}

TEST_P(NumaEngineTest, ABirthWaitsForTheRoomThatADemotionMakes) {
  if (fake != nullptr) fake->delay = std::chrono::milliseconds(20);
  engine->set_budget(2 * kTensor);
  born(0), born(1);
  demote(0);
  EXPECT_TRUE(born(2));
  EXPECT_LE(bytes_in(kFast), 2 * kTensor);
  EXPECT_TRUE(intact(0));
}

TEST_P(NumaEngineTest, SharedGranulesMoveWithTheLastThatIsWanted) {
  if (granule() == 4_KiB) GTEST_SKIP() << "these tensors share none";
  engine->set_budget(4 * kTensor);
  const auto half = kTensor / 2;
  engine->on_allocate(at(0), half);
  engine->on_allocate(at(0) + half, half);
  words(0)[0] = 7;
  engine->demote(at(0), half);
  usleep(20000);
  EXPECT_EQ(fast(0), kTensor);
  engine->demote(at(0) + half, half);
  while (fast(0) != 0) usleep(1000);
  EXPECT_EQ(words(0)[0], 7u);
}

TEST_P(NumaEngineTest, ABornTensorBesideASlowNeighbourIsBroughtIn) {
  if (granule() == 4_KiB) GTEST_SKIP() << "these tensors share none";
  engine->on_allocate(at(0), kTensor / 2);
  words(0)[3] = 9;
  engine->set_budget(4 * kTensor);
  EXPECT_TRUE(engine->on_allocate(at(0) + kTensor / 2, kTensor / 2));
  await(0);
  EXPECT_EQ(fast(0), kTensor);
  EXPECT_EQ(words(0)[3], 9u);
}

TEST_P(NumaEngineTest, PromotionsWithoutRoomStayInSlowMemory) {
  for (std::uint64_t t = 0; t < 4; ++t) born(t);
  engine->set_budget(2 * kTensor);
  for (std::uint64_t t = 0; t < 4; ++t) promote(t);
  await(0), await(1);
  EXPECT_EQ(fast(0) + fast(1), 2 * kTensor);
  usleep(10000);
  EXPECT_EQ(arrival(3), Arrival::no_room);
  await(3);  // comes back though there will never be room
  EXPECT_EQ(bytes_in(kFast), 2 * kTensor);
  demote(0);  // makes room for the third
  await(2);
  EXPECT_EQ(fast(2), kTensor);
}

// Case 2 of the paper, and how a plan avoids it.
TEST_P(NumaEngineTest, RoomIsLackingOnlyWhereNothingLeftEarly) {
  Trials trials(1, Choice::wait);
  const auto step = [&](std::uint64_t tensor) {
    trials.begin_step(0);
    trials.promotion(0, arrival(tensor));
    trials.end_step(0, true);
    return trials.rows()[0].cases;
  };
  for (std::uint64_t t = 0; t < 3; ++t) born(t);
  engine->set_budget(kTensor);
  promote(0);
  await(0);
  promote(1);
  usleep(20000);
  EXPECT_THAT(step(1), ::testing::ElementsAre(0, 1, 0));
  demote(0);
  await(1);

  demote(1);
  demoted(2 * kTensor);
  promote(2);
  await(2);
  EXPECT_THAT(step(2), ::testing::ElementsAre(1, 1, 0));
}

TEST_P(NumaEngineTest, AShrunkenBudgetHoldsWhenItReturns) {
  engine->set_budget(8 * kTensor);
  for (std::uint64_t t = 0; t < 8; ++t) born(t);
  engine->set_budget(2 * kTensor);
  EXPECT_LE(bytes_in(kFast), 2 * kTensor);
  for (std::uint64_t t = 0; t < 8; ++t) EXPECT_TRUE(intact(t));
}

// Writes go on while pages move, the budget holds at every moment, and no byte is lost.
TEST_P(NumaEngineTest, HoldsUnderARandomLoad) {
  constexpr std::uint64_t tensors = 24, budget = 9 * kTensor;
  engine->set_budget(budget);
  std::mt19937 random(7);
  enum { dead, slow, wanted } state[tensors] = {};
  for (int round = 0; round < 400; ++round) {
    const auto t = random() % tensors;
    if (state[t] != dead) {
      ASSERT_TRUE(intact(t)) << round;
    }
    switch (random() % 4) {
      case 0:
        if (state[t] != dead) dies(t, state[t] == wanted);
        state[t] = born(t) ? wanted : slow;
        break;
      case 1:
        if (state[t] == wanted) demote(t), state[t] = slow;
        break;
      case 2:
        if (state[t] == slow) promote(t), state[t] = wanted;
        break;
      default:
        if (state[t] != dead) await(t);
    }
    if (state[t] != dead) {
      words(t)[round] = 1;
      words(t)[round] = t * 1000003 + static_cast<std::uint64_t>(round);
    }
    ASSERT_LE(bytes_in(kFast), budget) << round;
  }
  EXPECT_LE(engine->counters().peak_bytes, budget);
}

TEST_P(NumaEngineTest, AdjacentRangesOfOneNodeAreOneRangeToTheKernel) {
  engine->set_budget(64 * kTensor);
  for (std::uint64_t t = 0; t < 64; ++t) born(t);
  for (std::uint64_t t = 0; t < 64; t += 2) demote(t);
  demoted(32 * kTensor);
  for (std::uint64_t t = 0; t < 64; t += 2) promote(t), await(t);
  std::ifstream maps("/proc/self/maps");
  int ranges = 0;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0;
    std::istringstream(line) >> std::hex >> begin;
    ranges += begin >= engine->arena() && begin < engine->arena() + kArena;
  }
  EXPECT_LE(ranges, 3);
}

TEST_P(NumaEngineTest, AChildSeesWhatThereIsAndTheParentGoesOn) {
  engine->set_budget(8 * kTensor);
  for (std::uint64_t t = 0; t < 16; ++t) born(t);
  engine->before_fork();
  const pid_t child = fork();
  if (child == 0) {
    engine->after_fork_in_child();
    usleep(100000);
    bool good = true;
    for (std::uint64_t t = 0; t < 16; ++t) good = good && intact(t);
    _exit(good ? 0 : 1);
  }
  engine->after_fork_in_parent();
  for (std::uint64_t t = 0; t < 8; ++t) demote(t);
  for (std::uint64_t t = 0; t < 16; ++t) words(t)[5] = ~0ull;
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (std::uint64_t t = 0; t < 16; ++t) EXPECT_EQ(words(t)[5], ~0ull);
}

TEST_P(NumaEngineTest, CountingAndBackKeepsContentsAndAddresses) {
  if (engine->loop() == nullptr || !engine->loop()->can_count()) GTEST_SKIP() << "no userfaultfd";
  ASSERT_EQ(engine->start_counting(), 0);  // from the very start, as sessions do
  for (std::uint64_t t = 0; t < 8; ++t) EXPECT_FALSE(born(t));
  std::atomic<bool> stop = false;
  std::atomic<int> bad = 0;
  std::thread reader([&] {
    while (!stop)
      for (std::uint64_t t = 0; t < 8; ++t) bad += !intact(t);
  });
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(engine->stop_counting(), 0);
    std::atomic_ref(words(2)[round]) = 2 * 1000003 + static_cast<std::uint64_t>(round);
    ASSERT_EQ(engine->start_counting(), 0);
  }
  ASSERT_EQ(engine->stop_counting(), 0);
  stop = true;
  reader.join();
  EXPECT_EQ(bad, 0);
  engine->set_budget(4 * kTensor);
  for (std::uint64_t t = 0; t < 4; ++t) promote(t), await(t);
  for (std::uint64_t t = 0; t < 8; ++t) EXPECT_TRUE(intact(t));
  EXPECT_EQ(bytes_in(kFast), 4 * kTensor);
}

TEST_P(NumaEngineTest, WhatWasMovedOnceCanBeCountedAgain) {
  if (engine->loop() == nullptr || !engine->loop()->can_count()) GTEST_SKIP() << "no userfaultfd";
  engine->set_budget(4 * kTensor);
  for (std::uint64_t t = 0; t < 8; ++t) born(t);
  demote(1);
  demoted(kTensor);
  ASSERT_EQ(engine->start_counting(), 0);
  for (std::uint64_t t = 0; t < 8; ++t) EXPECT_TRUE(intact(t));
  ASSERT_EQ(engine->stop_counting(), 0);
  for (std::uint64_t t = 0; t < 4; ++t) await(t);
  EXPECT_EQ(fast(0) + fast(2) + fast(3), 3 * kTensor);  // those that the plan wants
  for (std::uint64_t t = 0; t < 8; ++t) EXPECT_TRUE(intact(t));
}

// Where the memory lies, on a kernel with read-write protection that is pretended.
TEST_P(NumaEngineTest, CountingPrivateMemoryNeedsNoSwitch) {
  if (const auto why = FakeRwp::absent(); !why.empty()) GTEST_SKIP() << why;
  FakeRwp rwp;
  const OtherUffdCalls others(rwp);
  SetUp();
  ASSERT_TRUE(engine->can_bar());
  engine->set_budget(4 * kTensor);
  for (std::uint64_t t = 0; t < 4; ++t) born(t);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(engine->start_barring(), 0);
    auto source = std::make_unique<RwpSource>(*engine->loop(), RwpSource::Options{});
    engine->count_with(&RwpSource::count, source.get());
    std::vector<ArmRange> ranges;
    for (std::uint32_t t = 0; t < 6; ++t) {
      if (t >= 4) engine->on_allocate(at(t), kTensor);
      ranges.push_back({at(t), kTensor, 1, t});
    }
    ASSERT_EQ(source->arm(ranges), 0);
    EXPECT_FALSE(engine->counting());
    for (std::uint64_t t = 0; t < 4; ++t) EXPECT_TRUE(intact(t)) << t;
    for (std::uint64_t t = 4; t < 6; ++t)  // whose first touches these are
      for (std::uint64_t i = 0; i < kTensor / 8; ++i) words(t)[i] = t * 1000003 + i;
    std::vector<PageCount> counts;
    ASSERT_EQ(source->drain(counts), 0);
    ASSERT_EQ(counts.size(), 6u);
    for (const auto& count : counts) {
      EXPECT_EQ(count.reads, count.tag < 4 ? kTensor / 4096 : 0) << count.tag;
      EXPECT_EQ(count.writes, count.tag < 4 ? 0 : kTensor / 4096) << count.tag;
    }
    engine->count_with(nullptr, nullptr);
    source.reset();
    engine->stop_barring();
    EXPECT_EQ(rwp.barred_pages(), 0u);
    for (std::uint64_t t = 0; t < 6; ++t) EXPECT_TRUE(intact(t)) << t;
    for (std::uint64_t t = 4; t < 6; ++t) dies(t, false);
  }
  engine.reset();  // before what it calls
}

// --- what the kernel answers, pretended

class NodeFaultTest : public NumaEngineTest {};

INSTANTIATE_TEST_SUITE_P(Granules, NodeFaultTest,
                         ::testing::Values(Nodes{"Fake4K", 4_KiB, false},
                                           Nodes{"Fake2M", 2_MiB, false}),
                         [](const auto& info) { return info.param.name; });

TEST_P(NodeFaultTest, BusyPagesAreTriedAgainAndCounted) {
  std::map<std::uintptr_t, int> asked;
  fake->answer = [&](std::uintptr_t page, int) { return ++asked[page] < 3 ? EBUSY : 0; };
  engine->set_budget(4 * kTensor);
  for (std::uint64_t t = 0; t < 4; ++t) born(t);
  demote(0);
  demoted(kTensor);
  EXPECT_EQ(fast(0), 0u);
  EXPECT_GE(cause(MoveCause::ebusy), 2u);
  EXPECT_EQ(engine->counters().pages_left, 0u);
}

TEST_P(NodeFaultTest, PagesSharedWithAChildStayAndAreCounted) {
  fake->answer = [](std::uintptr_t, int) { return EACCES; };
  engine->set_budget(2 * kTensor);
  born(0), born(1);
  demote(0);
  EXPECT_FALSE(born(2));  // the room did not come
  EXPECT_EQ(fast(0), kTensor);
  EXPECT_GT(cause(MoveCause::eacces), 0u);
  EXPECT_GT(engine->counters().pages_left, 0u);
  EXPECT_LE(bytes_in(kFast), 2 * kTensor);
  EXPECT_TRUE(intact(0));
}

TEST_P(NodeFaultTest, WhatCouldNotLeaveIsAskedAgainWhenRoomIsLacking) {
  std::atomic<bool> shared = true;
  fake->answer = [&](std::uintptr_t, int) { return shared ? EACCES : 0; };
  born(2);
  engine->set_budget(2 * kTensor);
  born(0), born(1);
  demote(0);
  while (engine->counters().pages_left == 0) usleep(1000);
  shared = false;  // the child has gone
  engine->tick();
  EXPECT_TRUE(born(3));  // in the room of the first
  EXPECT_EQ(fast(0), 0u);
  EXPECT_TRUE(intact(0));

  shared = true;
  const auto left = engine->counters().pages_left;
  demote(1);
  while (engine->counters().pages_left == left) usleep(1000);
  shared = false;
  engine->tick();
  promote(2);
  await(2);
  EXPECT_EQ(fast(2), kTensor);
  EXPECT_TRUE(intact(1) && intact(2));
}

// A birth that waits for a granule to leave asks once more when the kernel refuses that.
TEST_P(NodeFaultTest, WhatIsRefusedWhileABirthWaitsIsAskedAgain) {
  std::atomic<bool> waits = false;
  std::map<std::uintptr_t, int> asked;
  fake->answer = [&](std::uintptr_t page, int) {
    while (!waits) usleep(1000);
    if (asked.empty()) usleep(50000);
    return ++asked[page] == 1 ? EACCES : 0;
  };
  engine->set_budget(2 * kTensor);
  born(0), born(1);
  demote(0);
  waits = true;
  EXPECT_TRUE(born(3));
  EXPECT_EQ(fast(0), 0u);
  EXPECT_TRUE(intact(0) && intact(1));
}

// Where it stays so, nobody waits for it for ever, and it is not asked for ever.
TEST_P(NodeFaultTest, WhatNeverLeavesIsAskedOnceAnOp) {
  fake->answer = [](std::uintptr_t, int) { return EACCES; };
  born(1);
  engine->set_budget(kTensor);
  born(0);
  demote(0);
  promote(1);
  await(1);
  EXPECT_EQ(fast(1), 0u);
  usleep(20000);
  const auto calls = fake->calls.load();
  usleep(50000);
  EXPECT_EQ(fake->calls, calls);
}

TEST_P(NodeFaultTest, AFullNodeLeavesPromotionsWhereTheyAre) {
  for (std::uint64_t t = 0; t < 4; ++t) born(t);
  fake->answer = [](std::uintptr_t, int node) { return node == kFast ? ENOMEM : 0; };
  engine->set_budget(4 * kTensor);
  promote(0);
  await(0);
  EXPECT_EQ(fast(0), 0u);
  EXPECT_GT(cause(MoveCause::enomem), 0u);
  EXPECT_EQ(bytes_in(kFast), 0u);
  fake->answer = nullptr;  // and nothing is held for them
  for (std::uint64_t t = 4; t < 8; ++t) EXPECT_TRUE(born(t));
}

TEST_P(NodeFaultTest, PagesThatAreNotThereAreNoFailure) {
  engine->set_budget(4 * kTensor);
  engine->on_allocate(at(0), kTensor);  // never touched
  fake->answer = [](std::uintptr_t, int) { return EFAULT; };
  born(1);
  demote(0), demote(1);
  while (cause(MoveCause::efault) == 0 || fast(0) + fast(1) != 0) usleep(1000);
  EXPECT_EQ(engine->counters().demoted_bytes, 0u);
}

TEST_P(NodeFaultTest, ACallThatEndsEarlyIsAskedWhatItDid) {
  engine->set_budget(8 * kTensor);
  for (std::uint64_t t = 0; t < 4; ++t) born(t);
  fake->stops_after = 200;
  for (std::uint64_t t = 0; t < 4; ++t) demote(t);
  demoted(4 * 200 * FakeNodes::kPage);
  for (std::uint64_t t = 0; t < 4; ++t) EXPECT_TRUE(intact(t));
  EXPECT_EQ(bytes_in(FakeNodes::kEither), 4 * kTensor);
}

TEST_P(NodeFaultTest, WhatIsLateIsLateForLackOfTime) {
  born(0);
  engine->set_budget(4 * kTensor);
  fake->delay = std::chrono::milliseconds(50);
  promote(0);
  EXPECT_EQ(arrival(0), Arrival::no_time);
  await(0);
  EXPECT_EQ(arrival(0), Arrival::in_time);
  EXPECT_GT(engine->counters().stall_us, 1000);
}

TEST_P(NodeFaultTest, WhatIsLeftStaysSlowUntilItIsPromotedAgain) {
  for (std::uint64_t t = 0; t < 40; ++t) born(t);
  engine->set_budget(64 * kTensor);
  fake->delay = std::chrono::milliseconds(5);
  for (std::uint64_t t = 0; t < 40; ++t) promote(t);
  for (std::uint64_t t = 0; t < 40; ++t) engine->leave(at(t), kTensor);
  await(39);
  EXPECT_EQ(fast(39), 0u);
  fake->delay = std::chrono::microseconds{0};
  demote(39), promote(39), await(39);
  EXPECT_EQ(fast(39), kTensor);
}

}  // namespace
}  // namespace sentinel
