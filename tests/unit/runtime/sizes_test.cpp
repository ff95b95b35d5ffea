#include "runtime/step/sizes.h"

#include <gtest/gtest.h>

#include <string>

#include "capture/recorder.h"
#include "runtime/step/growth.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kBytes = 1 << 20;

// Behind the prelude ten ops, each of which makes two tensors: of kBytes and of half of that.
Profile step() {
  Profile profile;
  for (std::uint32_t op = 0; op <= 10; ++op) {
    profile.ops.push_back({.name = op == 0 ? StepRecorder::kPrelude : "op " + std::to_string(op)});
    if (op == 0) continue;
    profile.tensors.push_back({.bytes = kBytes, .alloc_op = OpId(op), .ordinal = 0});
    profile.tensors.push_back({.bytes = kBytes / 2, .alloc_op = OpId(op), .ordinal = 1});
  }
  return profile;
}

class StepSizesTest : public testing::Test {
 protected:
  // All ops but those from `but` on make tensors of the profiled sizes times `percent` / 100.
  void made(std::uint64_t percent, std::uint32_t but = 11) {
    sizes_.begin_step();
    for (std::uint32_t op = 1; op < but; ++op) {
      sizes_.allocated(op, kBytes * percent / 100);
      sizes_.allocated(op, kBytes / 2 * percent / 100);
    }
  }
  StepSizes::Difference difference() const { return sizes_.against(matcher_, profile_); }

  const Profile profile_ = step();
  const StepMatcher matcher_{profile_};
  StepSizes sizes_;
};

TEST_F(StepSizesTest, ASmallerStepFollowsAndIsNotLarger) {
  made(60);
  const auto found = difference();
  EXPECT_TRUE(found.follows);
  EXPECT_FALSE(found.larger);
  for (std::size_t t = 0; t < profile_.tensors.size(); ++t)
    EXPECT_EQ(found.bytes[t], profile_.tensors[t].bytes) << "the larger of the two";
}

TEST_F(StepSizesTest, ALargerStepSaysHowLargeItsTensorsAre) {
  made(150);
  const auto found = difference();
  EXPECT_TRUE(found.follows);
  EXPECT_TRUE(found.larger);
  ASSERT_EQ(found.bytes.size(), profile_.tensors.size());
  for (std::size_t t = 0; t < profile_.tensors.size(); ++t)
    EXPECT_EQ(found.bytes[t], profile_.tensors[t].bytes * 3 / 2);
}

TEST_F(StepSizesTest, OneTensorThatIsLargerIsNoLargerStep) {
  made(100, 10);
  sizes_.allocated(10, kBytes / 2);
  sizes_.allocated(10, kBytes / 2 + 64);
  EXPECT_FALSE(difference().larger);
  made(100, 10);
  sizes_.allocated(10, kBytes * 2);
  sizes_.allocated(10, kBytes / 2);
  EXPECT_TRUE(difference().larger) << "more than a twentieth of all";
}

TEST_F(StepSizesTest, NothingIsKnownOfAnOpThatMakesAnotherNumberOfTensors) {
  made(100, 10);
  sizes_.allocated(10, 4 * kBytes);
  auto found = difference();
  EXPECT_FALSE(found.follows) << "a fifth of its bytes";
  EXPECT_FALSE(found.larger);
  EXPECT_EQ(found.bytes[18], kBytes);
  made(100);
  sizes_.allocated(10, 4096);
  found = difference();
  EXPECT_FALSE(found.follows) << "a tenth";
  made(100);
  sizes_.allocated(11, 4096);
  EXPECT_TRUE(difference().follows) << "of an op that the profile lacks, and next to nothing";
}

TEST_F(StepSizesTest, OfAStepWithoutEndNotAllIsKept) {
  made(100);
  EXPECT_TRUE(difference().follows);
  for (int i = 0; i < 1 << 20; ++i) sizes_.allocated(11, 0);
  EXPECT_FALSE(difference().follows);
}

TEST_F(StepSizesTest, AStepBeginsWithNothing) {
  made(300);
  sizes_.begin_step();
  EXPECT_FALSE(difference().larger);
}

// Each step of this training is larger than all before.
TEST(Growth, AStepThatIsLargerIsPlannedAtOnceAndLaterSeldom) {
  Growth growth;
  std::uint32_t plans = 0;
  std::vector<std::uint32_t> at;
  for (std::uint32_t step = 0; step < 1000; ++step) {
    growth.step_over();
    if (!growth.due()) continue;
    growth.planned();
    ++plans;
    if (at.size() < 6) at.push_back(step);
  }
  EXPECT_EQ(at, (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 6}));
  EXPECT_LT(plans, 15u);
}

TEST(Growth, AfterALongTimeItIsDueAgain) {
  Growth growth;
  for (int i = 0; i < 8; ++i) growth.planned();
  EXPECT_FALSE(growth.due());
  for (int step = 0; step < 200; ++step) growth.step_over();
  EXPECT_TRUE(growth.due());
}

}  // namespace
}  // namespace sentinel
