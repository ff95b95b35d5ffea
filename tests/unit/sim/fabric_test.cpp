#include "sim/fluid/fabric.h"

#include <gmock/gmock.h>

#include <cmath>

namespace sentinel::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// 1 MB/us port on the fast tier, 1 MB/us and 0.25 MB/us on the slower ones.
Machine three_tiers() {
  return {.tiers = {{.name = "fast"},
                    {.name = "host"},
                    {.name = "ssd", .read_bw = 0.25e12, .write_bw = 0.25e12}},
          .links = {{.name = "port", .bw = 1e12, .tiers = {"fast"}}}};
}

std::vector<TransferId> next(Fabric& fabric) {
  std::vector<TransferId> completed;
  fabric.advance(fabric.next_event_us(), completed);
  return completed;
}

TEST(Fabric, OneTransferRunsAtTheSlowestPart) {
  const Machine m = three_tiers();
  Fabric fabric(m);
  const TransferId t = fabric.start(2, 0, 1'000'000, 0);
  EXPECT_THAT(next(fabric), ElementsAre(t));
  EXPECT_NEAR(fabric.now_us(), 4, 1e-9);
}

// Max-min: the SSD transfer is held to 0.25 by its own tier, the host transfer takes the other 0.75
// of the port, not half of it. 3 MB from the host take 4 us, in which 1 MB comes from the SSD.
TEST(Fabric, WhatOneCannotUseTheOtherGets) {
  const Machine m = three_tiers();
  Fabric fabric(m);
  fabric.start(2, 0, 1'000'000, 0);
  fabric.start(1, 0, 3'000'000, 0);
  next(fabric);
  EXPECT_NEAR(fabric.now_us(), 4, 1e-6);
}

TEST(Fabric, DirectionsDoNotDisturbEachOther) {
  const Machine m = three_tiers();
  Fabric fabric(m);
  const TransferId in = fabric.start(1, 0, 1'000'000, 0), out = fabric.start(0, 1, 1'000'000, 0);
  EXPECT_THAT(next(fabric), ElementsAre(in, out));
  EXPECT_NEAR(fabric.now_us(), 1, 1e-9);
}

// 1 MB each way over 1 MB/us of both ways together; what is alone has all of it.
TEST(Fabric, DirectionsShareAHalfDuplexLink) {
  Machine m = three_tiers();
  m.links[0].half_duplex = true;
  Fabric fabric(m);
  const TransferId in = fabric.start(1, 0, 1'000'000, 0), out = fabric.start(0, 1, 2'000'000, 0);
  EXPECT_THAT(next(fabric), ElementsAre(in));
  EXPECT_NEAR(fabric.now_us(), 2, 1e-9);
  EXPECT_THAT(next(fabric), ElementsAre(out));
  EXPECT_NEAR(fabric.now_us(), 3, 1e-9);
}

TEST(Fabric, RateIsThatOfAllTransfersUnderWay) {
  const Machine m = three_tiers();
  Fabric fabric(m);
  EXPECT_EQ(fabric.rate(), 0);
  fabric.start(1, 0, 1'000'000, 5);
  EXPECT_EQ(fabric.rate(), 0) << "not before the delay is over";
  next(fabric);
  fabric.start(0, 1, 1'000'000, 0);
  EXPECT_NEAR(fabric.rate(), 2e6, 1) << "bytes per us, both ways";
}

// A drive of 6 MB/us out and 3 in, one thing at a time: 2 MB/us each way until the 2 MB that come
// have come at 1 us; of the 8 that go 6 are left, for another us.
TEST(Fabric, DirectionsTakeTurnsAtADrive) {
  const Machine m{.tiers = {{.name = "fast"}, {.name = "ssd", .read_bw = 3e12, .write_bw = 6e12}},
                  .links = {{.name = "drive", .bw = 6e12, .tiers = {"ssd"}, .half_duplex = true}}};
  Fabric fabric(m);
  const TransferId in = fabric.start(1, 0, 2'000'000, 0), out = fabric.start(0, 1, 8'000'000, 0);
  EXPECT_THAT(next(fabric), ElementsAre(in));
  EXPECT_NEAR(fabric.now_us(), 1, 1e-9);
  EXPECT_THAT(next(fabric), ElementsAre(out));
  EXPECT_NEAR(fabric.now_us(), 2, 1e-9);
}

// Two from the host share the port until one ends: 1 MB each at half rate is over at 2 us, the
// other's second MB at 3 us.
TEST(Fabric, RatesChangeWhenATransferEnds) {
  const Machine m = three_tiers();
  Fabric fabric(m);
  const TransferId a = fabric.start(1, 0, 1'000'000, 0), b = fabric.start(1, 0, 2'000'000, 0);
  EXPECT_THAT(next(fabric), ElementsAre(a));
  EXPECT_NEAR(fabric.now_us(), 2, 1e-9);
  EXPECT_THAT(next(fabric), ElementsAre(b));
  EXPECT_NEAR(fabric.now_us(), 3, 1e-9);
}

TEST(Fabric, DelayComesBeforeTheFirstByte) {
  const Machine m = three_tiers();
  Fabric fabric(m);
  const TransferId t = fabric.start(1, 0, 1'000'000, 5);
  EXPECT_THAT(next(fabric), IsEmpty());
  EXPECT_NEAR(fabric.now_us(), 5, 1e-9);
  EXPECT_THAT(next(fabric), ElementsAre(t));
  EXPECT_NEAR(fabric.now_us(), 6, 1e-9);
  EXPECT_TRUE(fabric.idle());
  EXPECT_TRUE(std::isinf(fabric.next_event_us()));
}

}  // namespace
}  // namespace sentinel::sim
