#include "runtime/step/trial.h"

#include <gmock/gmock.h>

namespace sentinel {
namespace {

// Steps of three intervals of 100 us each, of which the second's promotions are late. `waiting` and
// `leaving` are what the second takes either way.
class Steps {
 public:
  explicit Steps(double waiting, double leaving) : waiting_(waiting), leaving_(leaving) {}

  std::string step(Arrival second = Arrival::no_time, bool whole = true) {
    const auto phase = trials.trying() ? "trial" : "steady";
    trials.begin_step(us_);
    for (std::uint32_t i = 0; i < 3; ++i) {
      trials.enter(i, us_);
      trials.promotion(i, i == 1 ? second : Arrival::in_time);
      const bool waits = trials.choice(i) == Choice::wait;
      us_ += i != 1 ? 100 : waits ? waiting_ : leaving_;
    }
    trials.end_step(us_, whole);
    return phase;
  }
  std::vector<std::string> steps(int count) {
    std::vector<std::string> phases;
    while (count-- > 0) phases.push_back(step());
    return phases;
  }

  Trials trials{3};

 private:
  double waiting_, leaving_, us_ = 0;
};

TEST(Trials, TwoStepsSettleALateIntervalForGood) {
  Steps run(180, 140);
  EXPECT_THAT(run.steps(7), ::testing::ElementsAre("steady", "steady", "trial", "trial", "steady",
                                                   "steady", "steady"));
  const auto& row = run.trials.rows()[1];
  EXPECT_EQ(row.chosen, Choice::leave);
  EXPECT_EQ(run.trials.choice(1), Choice::leave);
  EXPECT_DOUBLE_EQ(row.wait_us, 280);  // and what follows until the next interval on trial
  EXPECT_DOUBLE_EQ(row.leave_us, 240);
  EXPECT_EQ(row.cases[2], 7u);
  EXPECT_EQ(run.trials.rows()[0].cases[0], 7u);
}

TEST(Trials, WaitingStaysWhereItIsTheBetter) {
  Steps run(120, 500);
  run.steps(6);
  EXPECT_EQ(run.trials.choice(1), Choice::wait);
  EXPECT_TRUE(run.trials.rows()[1].tried);
}

TEST(Trials, WhatIsInTimeOrLacksRoomIsNotTried) {
  Steps run(120, 100);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(run.step(Arrival::in_time), "steady");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(run.step(Arrival::no_room), "steady");
  EXPECT_EQ(run.trials.rows()[1].cases, (std::array<std::uint64_t, 3>{5, 5, 0}));
}

TEST(Trials, AStepOfAnotherKindIsTriedAgain) {
  Steps run(180, 140);
  run.steps(2);
  EXPECT_EQ(run.step(Arrival::no_time, false), "trial");
  EXPECT_THAT(run.steps(3), ::testing::ElementsAre("trial", "trial", "steady"));
  EXPECT_DOUBLE_EQ(run.trials.rows()[1].wait_us, 280);
}

}  // namespace
}  // namespace sentinel
