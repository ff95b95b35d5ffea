#include "engine/flow.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace sentinel {
namespace {

TEST(FlowMeter, CountsTheTimeInWhichAnythingIsInFlight) {
  constexpr auto pause = std::chrono::milliseconds(20);
  FlowMeter meter;
  EXPECT_EQ(meter.flow().busy_us, 0);
  meter.finished(0, 0);
  const auto begin = std::chrono::steady_clock::now();
  meter.started();
  meter.started();
  std::this_thread::sleep_for(pause);
  meter.finished(1, 10);
  const double first = meter.flow().busy_us;
  EXPECT_GE(first, 20e3);
  meter.finished(1, 10);
  const std::chrono::duration<double, std::micro> both = std::chrono::steady_clock::now() - begin;
  EXPECT_LE(meter.flow().busy_us, both.count());
  std::this_thread::sleep_for(pause);  // nothing in flight
  const auto again = std::chrono::steady_clock::now();
  const auto before = meter.flow();
  meter.started();
  meter.finished(1, 10);
  const std::chrono::duration<double, std::micro> third = std::chrono::steady_clock::now() - again;
  EXPECT_LE((meter.flow() - before).busy_us, third.count());
  EXPECT_EQ((meter.flow() - before).bytes, 10u);
  EXPECT_EQ(meter.flow().bytes, 30u);
}

}  // namespace
}  // namespace sentinel
