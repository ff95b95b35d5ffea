// Which threads are in turn, and that what they wait for is read before all else.
#include "engine/ssd/frame_use.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/ssd/blocks.h"

namespace sentinel {
namespace {

constexpr unsigned kThreads = FrameUse::kThreadsAtOnce;
constexpr auto kFrames = FrameUse::frames_at_once(kThreads);

class FrameUseTest : public testing::Test {
 protected:
  void come(std::uint64_t blocks) {
    for (std::uint64_t i = 0; i < blocks; ++i) use.came();
  }

  std::atomic<std::uint64_t> clock = 1;
  FrameUse use{clock};
};

TEST_F(FrameUseTest, AFewThreadsAreAlwaysInTurn) {
  for (int round = 0; round < 3; ++round)
    for (pid_t thread = 1; thread <= pid_t{kThreads}; ++thread) {
      EXPECT_TRUE(use.in_turn(thread));
      come(kFrames);
    }
}

TEST_F(FrameUseTest, AnotherThreadIsInTurnOnceOneHasNotWaitedForLong) {
  for (pid_t thread = 1; thread <= pid_t{kThreads}; ++thread) EXPECT_TRUE(use.in_turn(thread));
  EXPECT_FALSE(use.in_turn(100));
  come(kFrames);
  EXPECT_FALSE(use.in_turn(100)) << "the instructions may not be done";
  for (pid_t thread = 2; thread <= pid_t{kThreads}; ++thread) EXPECT_TRUE(use.in_turn(thread));
  come(1);
  EXPECT_TRUE(use.in_turn(100));
  EXPECT_FALSE(use.in_turn(1)) << "it waited last when none of the others did";
  EXPECT_FALSE(use.in_turn(101));
  EXPECT_TRUE(use.in_turn(2));
}

TEST_F(FrameUseTest, WhatAThreadInTurnWaitsForIsReadFirst) {
  FrameBlocks blocks(8);
  const auto demand = [&](BlockIndex index, bool later) {
    blocks[index].later = later;
    blocks.demanded().push(index);
  };
  demand(0, true);
  demand(1, false);
  demand(2, true);
  demand(3, false);
  blocks.demanded().remove(2);  // a thread in turn waits for it as well
  demand(2, false);
  demand(4, true);
  EXPECT_EQ(blocks.demanded().size(), 5u);
  std::vector<BlockIndex> order;
  while (!blocks.demanded().empty()) order.push_back(blocks.demanded().pop());
  EXPECT_EQ(order, (std::vector<BlockIndex>{1, 3, 2, 0, 4}));
  blocks[5].later = true;
  blocks.ahead().push(5);
  blocks.ahead().push(6);
  EXPECT_EQ(blocks.ahead().pop(), 5u) << "other queues know no turns";
}

}  // namespace
}  // namespace sentinel
