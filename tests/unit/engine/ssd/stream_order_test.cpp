// What is learned of the order in which an op asks for its blocks.
#include "engine/ssd/stream_order.h"

#include <gmock/gmock.h>

#include <atomic>
#include <vector>

namespace sentinel {
namespace {

using ::testing::ElementsAre;

class StreamOrderTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kName = 7;
  static constexpr BlockIndex kLength = 4;

  // A step's op: its ranges of kLength absent blocks begin there.
  void begin(const std::vector<BlockIndex>& ranges, std::size_t most = 8) {
    ++clock;
    order.begin(kName, most);
    for (const auto first : ranges) add(first);
  }
  void add(BlockIndex first, BlockState state = BlockState::absent) {
    for (auto index = first; index < first + kLength; ++index) blocks[index].state = state;
    order.uses(first, first + kLength - 1);
  }
  std::vector<BlockIndex> foreseen() {
    std::vector<BlockIndex> found;
    for (auto next = order.next(); next != kNoBlock; next = order.next()) found.push_back(next);
    return found;
  }
  static std::vector<BlockIndex> every(BlockIndex step, BlockIndex end) {
    std::vector<BlockIndex> found;
    for (BlockIndex index = 0; index < end; index += step) found.push_back(index);
    return found;
  }
  // Each has a frame from then on.
  void ask(const std::vector<BlockIndex>& touches) {
    for (const auto index : touches) {
      order.asked(index);
      blocks[index].state = BlockState::resident;
    }
  }

  std::atomic<std::uint64_t> clock = 1;
  FrameUse use{clock};
  FrameBlocks blocks{200};
  StreamOrder order{blocks, use};
};

TEST_F(StreamOrderTest, TheNextStepIsForeseenWhereverItsTensorsLie) {
  begin({0, 10});
  EXPECT_FALSE(order.knows());
  EXPECT_THAT(foreseen(), ElementsAre());
  ask({3, 2, 1, 0, 12, 10});
  begin({100, 50});
  EXPECT_TRUE(order.knows());
  EXPECT_THAT(foreseen(), ElementsAre(103, 102, 101, 100, 52, 50));
  EXPECT_EQ(order.due(blocks[52]), 4u);
  EXPECT_EQ(order.due(blocks[51]), StreamOrder::kNever);
}

TEST_F(StreamOrderTest, NoMoreIsForeseenThanIsAllowedUntilATouchIsSeen) {
  begin({0, 10});
  ask({0, 1, 2, 3, 10, 11});
  begin({0, 10}, 2);
  EXPECT_THAT(foreseen(), ElementsAre(0, 1));
  EXPECT_THAT(foreseen(), ElementsAre());
  EXPECT_TRUE(order.asked(1));
  EXPECT_THAT(foreseen(), ElementsAre(2, 3));
}

TEST_F(StreamOrderTest, ABirthNeedsAFrameAndNoRead) {
  begin({0});
  ask({0, 1});
  add(20, BlockState::empty);
  ask({20, 21});
  ask({2, 3});
  begin({0}, 3);
  EXPECT_THAT(foreseen(), ElementsAre(0, 1));
  ask({1});
  add(30, BlockState::empty);
  EXPECT_THAT(foreseen(), ElementsAre(2));
}

TEST_F(StreamOrderTest, ABlockThatIsTouchedTwiceIsDueAgain) {
  begin({0, 10, 20});
  ask({0, 10, 11, 12, 13, 20, 21, 22, 23});
  blocks[0].state = BlockState::absent;
  ask({0});
  begin({0, 10, 20});
  EXPECT_EQ(order.due(blocks[0]), 0u);
  EXPECT_TRUE(order.asked(0));
  EXPECT_EQ(order.due(blocks[0]), 9u);
}

TEST_F(StreamOrderTest, WhatWasNotForeseenIsInsertedWhereItWasAskedFor) {
  begin({0});
  ask({0, 1, 3});
  begin({0});
  EXPECT_TRUE(order.asked(1));
  EXPECT_FALSE(order.asked(2));
  EXPECT_TRUE(order.asked(3));
  begin({0});
  EXPECT_THAT(foreseen(), ElementsAre(0, 1, 2, 3));
}

TEST_F(StreamOrderTest, AnOrderThatIsWrongIsReplacedAndGivenUpInTheEnd) {
  const auto ranges = every(kLength, 160);
  const auto step = [&](BlockIndex from) {
    begin(ranges);
    for (auto index = from; index < from + 40; ++index) order.asked(index);
  };
  step(0);
  step(40);
  begin(ranges, 64);
  EXPECT_EQ(order.next(), 40u);
  for (const BlockIndex from : {80u, 120u, 0u, 40u}) step(from);
  begin(ranges);
  EXPECT_FALSE(order.knows());
}

TEST_F(StreamOrderTest, AnOpThatIsFurtherIsFoundAgain) {
  const auto ranges = every(kLength, 160);
  begin(ranges);
  ask(every(1, 160));
  begin(ranges, 2);
  EXPECT_FALSE(order.asked(100));
  EXPECT_FALSE(order.asked(102));
  EXPECT_TRUE(order.asked(104));
  EXPECT_THAT(foreseen(), ElementsAre(105, 106));
}

TEST_F(StreamOrderTest, AnOpThatStraysForeseesNothing) {
  const auto ranges = every(kLength, 160);
  begin(ranges);
  ask(every(1, 20));
  begin(ranges);
  EXPECT_TRUE(order.is_soon(blocks[5]));
  for (BlockIndex index = 60; index < 120; ++index) order.asked(index);
  EXPECT_FALSE(order.is_soon(blocks[5]));
  EXPECT_THAT(foreseen(), ElementsAre());
}

TEST_F(StreamOrderTest, AnOpThatWasTouchedInPiecesIsNotLearned) {
  begin({0});
  ask({0, 1});
  order.asked_for_pieces(3);
  begin({0});
  EXPECT_FALSE(order.knows());
}

}  // namespace
}  // namespace sentinel
