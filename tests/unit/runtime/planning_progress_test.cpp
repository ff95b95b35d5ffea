#include "runtime/limit/planning_progress.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

namespace sentinel {
namespace {

using namespace std::chrono_literals;

TEST(PlanningProgress, TellsOfALongPlanAgainAndAgain) {
  std::atomic<int> lines{0};
  std::string last;
  {
    const PlanningProgress progress(
        [&](const std::string& text) {
          last = text;
          ++lines;
        },
        "3 ops", {20ms, 10ms});
    while (lines < 3) std::this_thread::sleep_for(1ms);
  }
  EXPECT_THAT(last, ::testing::HasSubstr("a plan for 3 ops is being made; 0 s so far"));
  const int told = lines;
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(lines, told);
}

TEST(PlanningProgress, SaysNothingOfAShortOne) {
  int lines = 0;
  {
    const PlanningProgress progress([&](const std::string&) { ++lines; }, "", {10s, 10s});
  }
  EXPECT_EQ(lines, 0);
}

}  // namespace
}  // namespace sentinel
