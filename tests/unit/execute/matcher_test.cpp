#include "execute/matcher.h"

#include <gtest/gtest.h>

#include <string>

#include "alloc/address_table.h"
#include "capture/recorder.h"

namespace sentinel {
namespace {

// Twenty ops "op 0", "op 1", ... behind the prelude; each makes a tensor of a size of its own.
constexpr std::uint32_t kOps = 21;

Profile step() {
  Profile profile;
  for (std::uint32_t i = 0; i < kOps; ++i) {
    profile.ops.push_back({.name = i == 0 ? StepRecorder::kPrelude : "op " + std::to_string(i)});
    profile.tensors.push_back({.bytes = 4096 * (i + 1), .alloc_op = OpId(i)});
  }
  return profile;
}

std::uint64_t name(std::uint32_t op) { return name_hash("op " + std::to_string(op)); }

TEST(StepMatcher, FollowsWhatWasProfiled) {
  StepMatcher matcher(step());
  matcher.begin_step();
  for (std::uint32_t op = 1; op < kOps; ++op) {
    EXPECT_EQ(matcher.op(name(op)), op);
    EXPECT_EQ(matcher.followed(), op);
    EXPECT_EQ(matcher.allocation(4096 * (op + 1)), op);
    EXPECT_EQ(matcher.allocation(4096 * (op + 1)), LiveTensor::kUnplanned) << "twice";
  }
}

TEST(StepMatcher, GoesOnBehindAnOpThatWasNotProfiled) {
  StepMatcher matcher(step());
  matcher.begin_step();
  EXPECT_EQ(matcher.op(name(1)), 1u);
  EXPECT_EQ(matcher.op(name_hash("new")), StepMatcher::kLost);
  EXPECT_EQ(matcher.followed(), 0u);
  EXPECT_EQ(matcher.allocation(8192), LiveTensor::kUnplanned);
  EXPECT_EQ(matcher.op(name(2)), 2u);
  EXPECT_EQ(matcher.followed(), 1u);
}

TEST(StepMatcher, FourNamesTellWhereItIsBehindAGap) {
  StepMatcher matcher(step());
  matcher.begin_step();
  EXPECT_EQ(matcher.op(name(1)), 1u);
  for (std::uint32_t op = 9; op < 12; ++op) EXPECT_EQ(matcher.op(name(op)), StepMatcher::kLost);
  EXPECT_EQ(matcher.op(name(12)), 12u);
  EXPECT_EQ(matcher.followed(), 0u);
  EXPECT_EQ(matcher.op(name(13)), 13u);
  EXPECT_EQ(matcher.followed(), 1u);
}

TEST(StepMatcher, AStepBeginsAnew) {
  StepMatcher matcher(step());
  matcher.begin_step();
  for (std::uint32_t op = 1; op < 9; ++op) matcher.op(name(op));
  matcher.begin_step();
  EXPECT_EQ(matcher.followed(), 0u);
  EXPECT_EQ(matcher.op(name(1)), 1u);
}

}  // namespace
}  // namespace sentinel
