// Two nodes over a file. Both are the machine's one node, so a frame's node is a name; all that
// moves is real.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "engine/host/node_calls.h"
#include "unit/engine/ssd/ssd_engine_fixture.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kFast = 24, kSlow = 16;  // frames

class TwoNodesTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    if (!engine->loop()->can_move()) GTEST_SKIP() << "this kernel has no UFFDIO_MOVE";
    auto with_nodes = options();
    with_nodes.node_calls = make_node_calls("one-node");
    with_nodes.nodes = {0, 0};
    with_nodes.node_bytes = kSlow * kGranule;
    engine = std::make_unique<SsdEngine>(with_nodes);
  }

  EngineCounters counters() const { return engine->counters(); }
  std::uint64_t fast_frames() const { return counters().held_bytes / kGranule; }
  std::uint64_t came() const { return counters().promoted_bytes / kGranule; }
  std::uint64_t went() const { return counters().demoted_bytes / kGranule; }

  template <class Is>
  static bool comes_true(Is&& is) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!is() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return is();
  }
  bool all_intact(std::uint64_t blocks) {
    for (std::uint64_t b = 0; b < blocks; ++b)
      if (!intact(b)) return false;
    return true;
  }
};

TEST_P(TwoNodesTest, TensorsBeginInFastMemoryAsLongAsItHasRoom) {
  begin_with(kFast + 8, kFast);
  EXPECT_EQ(fast_frames(), kFast);
  EXPECT_EQ(counters().writing.bytes, 0u);
  EXPECT_TRUE(all_intact(kFast + 8));
  EXPECT_EQ(counters().demand_faults, 0u);
}

TEST_P(TwoNodesTest, WhatIsDemotedGoesToTheSlowNodeAndIsUsedThere) {
  begin_with(8, kFast);
  engine->demote(at(0), 8 * kGranule);
  ASSERT_TRUE(comes_true([&] { return went() == 8; }));
  EXPECT_EQ(counters().writing.bytes, 0u);
  const auto faults = counters().demand_faults;
  EXPECT_TRUE(all_intact(8));
  EXPECT_EQ(counters().demand_faults, faults);
  engine->promote(at(0), 8 * kGranule);
  ASSERT_TRUE(comes_true([&] { return came() == 8; }));
  EXPECT_TRUE(all_intact(8));
}

TEST_P(TwoNodesTest, WhatSinksGoesToTheFileAndComesBackToFastMemory) {
  begin_with(8, kFast);
  engine->sink(at(0), 8 * kGranule);
  ASSERT_TRUE(comes_true([&] { return counters().writing.bytes == 8 * kGranule; }));
  engine->promote(at(0), 8 * kGranule);
  engine->await(at(0), 8 * kGranule);
  EXPECT_TRUE(all_intact(8));
  EXPECT_EQ(counters().reading.bytes, 8 * kGranule);
  EXPECT_EQ(came(), 8u) << "each came once, from the file";
}

// All frames but the placer's hold blocks.
TEST_P(TwoNodesTest, FullNodesExchangeBlocks) {
  constexpr auto kAll = kFast + kSlow - 1;
  begin_with(kAll, kFast);
  ASSERT_EQ(fast_frames(), kFast);
  for (std::uint64_t b = kFast; b < kAll; ++b) engine->demote(at(b), kGranule);  // they lie there
  engine->demote(at(0), 8 * kGranule);
  engine->promote(at(kFast), 8 * kGranule);
  ASSERT_TRUE(comes_true([&] { return came() == 8 && went() == 8; }));
  EXPECT_LE(counters().peak_bytes, kFast * kGranule);
  EXPECT_EQ(counters().writing.bytes, 0u);
  EXPECT_TRUE(all_intact(kAll));
}

TEST_P(TwoNodesTest, WhatIsOverBothNodesGoesToTheFile) {
  constexpr std::uint64_t kBlocks = 2 * (kFast + kSlow);
  begin_with(kBlocks, kFast);
  EXPECT_LE(fast_frames(), kFast);
  EXPECT_GE(counters().writing.bytes, (kBlocks - kFast - kSlow) * kGranule);
  EXPECT_TRUE(all_intact(kBlocks));
}

TEST_P(TwoNodesTest, ASmallerBudgetHoldsWhenItIsSet) {
  begin_with(kFast + kSlow - 1, kFast);
  engine->set_budget(8 * kGranule);
  EXPECT_LE(fast_frames(), 8u);
  EXPECT_TRUE(all_intact(kFast + kSlow - 1));
  engine->set_budget(kFast * kGranule);
  engine->demote(at(0), kGranule);
  engine->promote(at(0), kGranule);
  EXPECT_TRUE(all_intact(kFast + kSlow - 1));
}

// A dead block of the slow node is no place for what could begin in fast memory.
TEST_P(TwoNodesTest, WhatBeginsWhereADeadTensorLayBeginsInFastMemory) {
  begin_with(kFast + 4, kFast);
  engine->on_free(at(kFast), 4 * kGranule, true);
  engine->on_free(at(0), 4 * kGranule, true);
  for (std::uint64_t b = kFast; b < kFast + 4; ++b) on_allocate(b), fill(b);
  for (std::uint64_t b = kFast; b < kFast + 4; ++b) EXPECT_TRUE(intact(b));
  engine->demote(at(kFast), 4 * kGranule);
  EXPECT_TRUE(comes_true([&] { return went() == 4; })) << "they lay in fast memory";
}

TEST_P(TwoNodesTest, CountingAndBackKeepsContentsAndLimits) {
  if (!engine->loop()->can_count()) GTEST_SKIP() << "no MINOR faults here";
  begin_with(kFast + 4, kFast);
  engine->demote(at(0), 4 * kGranule);
  ASSERT_EQ(engine->start_counting(), 0);
  EXPECT_TRUE(all_intact(kFast + 4));
  ASSERT_EQ(engine->stop_counting(), 0);
  EXPECT_TRUE(all_intact(kFast + 4));
  EXPECT_TRUE(comes_true([&] { return fast_frames() == kFast; })) << "what is wanted comes back";
  EXPECT_TRUE(all_intact(kFast + 4));
}

// All lie in the slow node then, more than may be there.
TEST_P(TwoNodesTest, ABudgetBringsWhatIsWantedUntilBothNodesKeepToTheirLimits) {
  constexpr std::uint64_t kBlocks = kFast + kSlow - 1;
  for (std::uint64_t b = 0; b < kBlocks; ++b) on_allocate(b), fill(b);
  EXPECT_EQ(fast_frames(), 0u);
  engine->tick();
  engine->set_budget(kFast * kGranule);
  EXPECT_GE(fast_frames(), kBlocks - kSlow);
  EXPECT_TRUE(comes_true([&] { return fast_frames() == kFast; }));
  EXPECT_EQ(counters().writing.bytes, 0u);
  EXPECT_LE(counters().peak_bytes, kFast * kGranule);
  EXPECT_TRUE(all_intact(kBlocks));
}

TEST_P(TwoNodesTest, WithoutABudgetFastMemoryStaysAsItIs) {
  begin_with(kFast + 4, kFast);
  engine->set_budget(0);
  engine->demote(at(0), kGranule);
  engine->promote(at(0), kGranule);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_GE(fast_frames(), kFast - 1);
  EXPECT_TRUE(all_intact(kFast + 4));
}

// One write at a time: an exchange is none, and keeps nobody from one.
TEST_P(TwoNodesTest, ExchangesKeepNoWriteWaiting) {
  auto one_at_a_time = options();
  one_at_a_time.depth = 1;
  one_at_a_time.node_calls = make_node_calls("one-node");
  one_at_a_time.nodes = {0, 0};
  one_at_a_time.node_bytes = kSlow * kGranule;
  engine = std::make_unique<SsdEngine>(one_at_a_time);
  constexpr std::uint64_t kBlocks = kFast + kSlow + 8;
  begin_with(kBlocks, kFast);
  for (int round = 0; round < 10; ++round) {
    engine->demote(at(0), kFast * kGranule);
    engine->promote(at(0), kFast * kGranule);
    EXPECT_TRUE(all_intact(kBlocks));
    engine->tick();
  }
}

TEST_P(TwoNodesTest, AChildSeesWhatTheParentHad) {
  constexpr std::uint64_t kBlocks = kFast + kSlow + 8;
  begin_with(kBlocks, kFast);
  engine->demote(at(0), 8 * kGranule);
  const int status = status_of_child([&] { return all_intact(kBlocks); },
                                     [&] { engine->promote(at(0), 8 * kGranule); });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(all_intact(kBlocks));
}

// No write is lost, whatever moves meanwhile, and both nodes keep to their limits.
TEST_P(TwoNodesTest, ThreadsWriteWhileBlocksMove) {
  constexpr std::uint64_t kBlocks = kFast + kSlow + 8, kThreads = 3, kRounds = 400;
  engine->set_budget(kFast * kGranule);
  for (std::uint64_t b = 0; b < kBlocks; ++b) on_allocate(b), *words(b) = 0;
  engine->tick();
  std::atomic<bool> stop = false;
  std::vector<std::uint64_t> written(kBlocks);
  std::vector<std::thread> writers;
  for (std::uint64_t t = 0; t < kThreads; ++t)
    writers.emplace_back([&, t] {
      for (std::uint64_t i = 0; !stop; ++i)
        for (std::uint64_t b = t; b < kBlocks && !stop; b += kThreads) {
          words(b)[i % 512] += 1;
          ++written[b];
        }
    });
  std::mt19937 random(7);
  std::vector<bool> wanted(kBlocks, true);
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    const auto b = random() % kBlocks;
    if (!wanted[b])
      engine->promote(at(b), kGranule);
    else if (random() % 2 == 0)
      engine->demote(at(b), kGranule);
    else
      engine->sink(at(b), kGranule);
    wanted[b] = !wanted[b];
    engine->tick();
    if (i % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  stop = true;
  for (auto& writer : writers) writer.join();
  for (std::uint64_t b = 0; b < kBlocks; ++b) {
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < 512; ++i) sum += words(b)[i];
    EXPECT_EQ(sum, written[b]) << "block " << b;
  }
  EXPECT_LE(counters().peak_bytes, kFast * kGranule);
}

INSTANTIATE_TEST_SUITE_P(Engine, TwoNodesTest,
                         ::testing::Values(Mode{"moved", true, IoBackend::automatic},
                                           Mode{"threads", true, IoBackend::threads}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sentinel
