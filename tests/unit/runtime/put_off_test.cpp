// Moves that are issued later than their op, and the thread that says when.
#include "runtime/step/put_off.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "runtime/step/move_timer.h"
#include "runtime/step/trial.h"

namespace sentinel {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

Move move_of(std::uint32_t tensor, Direction direction) {
  Move move;
  move.tensor = TensorId(tensor);
  move.direction = direction;
  return move;
}

TEST(PutOffMoves, AreDueInTheirOrder) {
  PutOffMoves moves;
  EXPECT_EQ(moves.next_us(), PutOffMoves::kNever);
  moves.add(move_of(1, Direction::demote), 200);
  moves.add(move_of(2, Direction::promote), 100);
  moves.add(move_of(3, Direction::demote), 300);
  EXPECT_EQ(moves.next_us(), 100);
  EXPECT_THAT(moves.due(99), IsEmpty());
  const auto due = moves.due(200);
  ASSERT_THAT(due, SizeIs(2));
  EXPECT_EQ(due[0].tensor, TensorId(2));
  EXPECT_EQ(due[1].tensor, TensorId(1));
  EXPECT_THAT(moves.all(), SizeIs(1));
  EXPECT_TRUE(moves.empty());
}

TEST(PutOffMoves, WhatIsUsedStaysOrComesAtOnce) {
  PutOffMoves moves;
  moves.add(move_of(1, Direction::demote), 100);
  moves.add(move_of(2, Direction::promote), 100);
  EXPECT_THAT(moves.used(TensorId(3)), IsEmpty());
  EXPECT_THAT(moves.used(TensorId(1)), IsEmpty());
  const auto now = moves.used(TensorId(2));
  ASSERT_THAT(now, SizeIs(1));
  EXPECT_EQ(now[0].direction, Direction::promote);
  EXPECT_TRUE(moves.empty());
}

bool soon(const std::atomic<int>& count, int wanted) {
  for (int i = 0; i < 500 && count != wanted; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return count == wanted;
}

TEST(MoveTimer, RingsWhenItIsDueAndAsOftenAsItIsAsked) {
  std::atomic<int> rung = 0;
  std::atomic<double> at_us = 0;
  MoveTimer timer([&] {
    at_us = now_us();
    ++rung;
  });
  const double due = now_us() + 20e3;
  timer.at(due);
  ASSERT_TRUE(soon(rung, 1));
  EXPECT_GE(at_us, due);
  timer.at(now_us() + 3600e6);
  timer.at(now_us());  // sooner
  EXPECT_TRUE(soon(rung, 2));
}

TEST(MoveTimer, MayBeSetByWhoItCalls) {
  std::atomic<int> rung = 0;
  MoveTimer* self = nullptr;
  MoveTimer timer([&] {
    if (++rung < 5) self->at(now_us() + 100);
  });
  self = &timer;
  timer.at(now_us());
  EXPECT_TRUE(soon(rung, 5));
}

TEST(MoveTimer, EndsWithoutHavingRung) {
  MoveTimer never([] {}), waits([] { FAIL() << "it was not due"; });
  waits.at(now_us() + 3600e6);
}

}  // namespace
}  // namespace sentinel
