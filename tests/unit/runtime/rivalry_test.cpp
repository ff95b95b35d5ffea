// Two plans, and the steps under each.
#include "runtime/step/rivalry.h"

#include <gtest/gtest.h>

namespace sentinel {
namespace {

Plan named(const char* policy) {
  Plan plan;
  plan.policy = policy;
  return plan;
}

// Steps under plan "first" and then "second": which one is followed in the end, after how many.
std::pair<std::string, int> outcome(double first_ms, double second_ms) {
  Rivalry rivalry;
  rivalry.begin(named("second"));
  auto followed = named("first");
  int steps = 0;
  while (rivalry.open() && steps < 100) {
    const bool first_step = steps == 0 || steps == 5;
    const double ms = followed.policy == "first" ? first_ms : second_ms;
    ++steps;
    if (rivalry.step_over(first_step ? 1000 : ms)) followed = rivalry.exchange(std::move(followed));
  }
  return {followed.policy, steps};
}

TEST(Rivalry, TheShorterStepsStay) {
  EXPECT_EQ(outcome(90, 100), std::pair(std::string("first"), 10));
  EXPECT_EQ(outcome(100, 90), std::pair(std::string("second"), 10));
  EXPECT_EQ(outcome(100, 100).first, "first") << "by the simulator it is better";
}

TEST(Rivalry, NothingIsComparedThatWasCalledOff) {
  Rivalry rivalry;
  EXPECT_FALSE(rivalry.open());
  EXPECT_FALSE(rivalry.step_over(1));
  rivalry.begin(named("second"));
  rivalry.call_off();
  for (int step = 0; step < 10; ++step) EXPECT_FALSE(rivalry.step_over(1));
}

TEST(Rivalry, OneLongStepDecidesNothing) {
  Rivalry rivalry;
  rivalry.begin(named("second"));
  for (const double ms : {500.0, 90.0, 800.0, 90.0, 90.0}) rivalry.step_over(ms);
  EXPECT_EQ(rivalry.median(0), 90);
}

// What a step of other sizes takes says nothing of the two.
TEST(Rivalry, StepsOfOtherSizesEndItWithTheOtherPlan) {
  Rivalry rivalry;
  EXPECT_FALSE(rivalry.give_way());
  rivalry.begin({.policy = "other"});
  EXPECT_TRUE(rivalry.give_way());
  EXPECT_EQ(rivalry.exchange({.policy = "first"}).policy, "other");
  EXPECT_FALSE(rivalry.open());
}

}  // namespace
}  // namespace sentinel
