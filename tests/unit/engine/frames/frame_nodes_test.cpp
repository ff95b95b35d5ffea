// Counts and limits of frames in two nodes.
#include "engine/frames/frame_nodes.h"

#include <gtest/gtest.h>

namespace sentinel {
namespace {

constexpr auto kFastNode = FrameNode::fast, kSlowNode = FrameNode::slow;

void make(FrameNodes& nodes, Token token, FrameNode node) {
  nodes.adds(node);
  nodes.made(token, node);
}

TEST(FrameNodes, AllIsSlowAndUnlimitedBeforeABudget) {
  FrameNodes nodes(8, 2);
  EXPECT_EQ(nodes.of_next(kFastNode), kSlowNode);
  for (Token token = 0; token < 5; ++token) make(nodes, token, kSlowNode);
  EXPECT_TRUE(nodes.has_room(kSlowNode));
  nodes.set_fast(3);
  EXPECT_FALSE(nodes.has_room(kSlowNode));
  EXPECT_TRUE(nodes.is_over(kSlowNode));
  EXPECT_EQ(nodes.of_next(kSlowNode), kFastNode);
  EXPECT_EQ(nodes.for_blocks(), 4u);
}

TEST(FrameNodes, TheNodeGoesWithTheFrame) {
  FrameNodes nodes(8, 4);
  nodes.set_fast(4);
  make(nodes, 2, kFastNode);
  nodes.installed(5, nodes.of(2));
  EXPECT_EQ(nodes.of_block(5), kFastNode);
  nodes.taken(5, 7);  // into another place of the pool
  EXPECT_EQ(nodes.of(7), kFastNode);
  nodes.ends(7);
  EXPECT_EQ(nodes.held(kFastNode), 0u);
  EXPECT_EQ(nodes.peak(), 1u);
}

TEST(FrameNodes, AfterCountingAllIsInTheSlowNode) {
  FrameNodes nodes(8, 4);
  nodes.set_fast(4);
  make(nodes, 0, kFastNode);
  nodes.installed(3, kFastNode);
  nodes.stop();
  nodes.adds(kFastNode);  // of the memory file: counts for nothing
  nodes.start_again(6);
  EXPECT_EQ(nodes.of_block(3), kSlowNode);
  EXPECT_EQ(nodes.held(kFastNode), 0u);
  EXPECT_EQ(nodes.held(kSlowNode), 6u);
}

TEST(BlockRing, FirstInFirstOutAndEachOnce) {
  BlockRing ring(3);
  for (int round = 0; round < 5; ++round) {
    ring.push(2), ring.push(0), ring.push(2), ring.push(1);
    EXPECT_EQ(ring.pop(), 2u);
    ring.push(2);
    EXPECT_EQ(ring.pop(), 0u);
    EXPECT_EQ(ring.pop(), 1u);
    EXPECT_EQ(ring.pop(), 2u);
    EXPECT_TRUE(ring.empty());
  }
}

}  // namespace
}  // namespace sentinel
