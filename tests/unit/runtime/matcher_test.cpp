#include "runtime/step/matcher.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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
    auto place = matcher.op(name(op));
    EXPECT_EQ(place.position, op);
    EXPECT_EQ(matcher.followed(), op);
    EXPECT_EQ(matcher.allocation(place, 4096 * (op + 1)), op);
    EXPECT_EQ(matcher.allocation(place, 4096 * (op + 1)), LiveTensor::kUnplanned) << "twice";
  }
}

// Whose signature is the recorder's, too.
TEST(StepMatcher, AnAllocationInThePlaceOfAFreedOneIsTheSameTensor) {
  StepRecorder recorder;
  recorder.begin();
  const auto op = recorder.op_start("op", Phase::forward);
  const auto first = recorder.allocated(op, 4096, 0);
  recorder.allocated(op, 8192, 0);
  recorder.freed(first);
  recorder.allocated(op, 4096, 0);
  const auto profile = recorder.profile({}, {});
  ASSERT_EQ(profile.tensors.size(), 2u);

  StepMatcher matcher(profile);
  EXPECT_EQ(matcher.signature(), recorder.signature());
  matcher.begin_step();
  auto place = matcher.op(name_hash("op"));
  EXPECT_EQ(matcher.allocation(place, 4096), 0u);
  EXPECT_EQ(matcher.allocation(place, 8192), 1u);
  EXPECT_EQ(matcher.allocation(place, 4096), 0u);
  EXPECT_EQ(matcher.allocation(place, 4096), LiveTensor::kUnplanned);
}

TEST(StepMatcher, GoesOnBehindAnOpThatWasNotProfiled) {
  StepMatcher matcher(step());
  matcher.begin_step();
  EXPECT_EQ(matcher.op(name(1)).position, 1u);
  auto place = matcher.op(name_hash("new"));
  EXPECT_EQ(place.position, StepMatcher::kLost);
  EXPECT_EQ(matcher.followed(), 0u);
  EXPECT_EQ(matcher.allocation(place, 8192), LiveTensor::kUnplanned);
  EXPECT_EQ(matcher.op(name(2)).position, 2u);
  EXPECT_EQ(matcher.followed(), 1u);
}

TEST(StepMatcher, FourNamesTellWhereItIsBehindAGap) {
  StepMatcher matcher(step());
  matcher.begin_step();
  EXPECT_EQ(matcher.op(name(1)).position, 1u);
  for (std::uint32_t op = 9; op < 12; ++op)
    EXPECT_EQ(matcher.op(name(op)).position, StepMatcher::kLost);
  EXPECT_EQ(matcher.op(name(12)).position, 12u);
  EXPECT_EQ(matcher.followed(), 0u);
  EXPECT_EQ(matcher.op(name(13)).position, 13u);
  EXPECT_EQ(matcher.followed(), 1u);
}

TEST(StepMatcher, AStepBeginsAnew) {
  StepMatcher matcher(step());
  matcher.begin_step();
  for (std::uint32_t op = 1; op < 9; ++op) matcher.op(name(op));
  matcher.begin_step();
  EXPECT_EQ(matcher.followed(), 0u);
  EXPECT_EQ(matcher.op(name(1)).position, 1u);
}

// An op makes tensors of 8, 4 and 2 pages.
class StepMatcherSizes : public testing::Test {
 protected:
  static Profile profile() {
    Profile profile;
    for (const auto* each : {StepRecorder::kPrelude, "op"}) profile.ops.push_back({.name = each});
    for (std::uint32_t i = 0; i < 3; ++i)
      profile.tensors.push_back({.bytes = 32768u >> i, .alloc_op = OpId(1), .ordinal = i});
    return profile;
  }
  // The tensors that the op is taken to make.
  std::vector<std::uint32_t> matched(const std::vector<std::uint64_t>& sizes,
                                     OpOrder order = OpOrder::sequence) {
    StepMatcher matcher(profile(), order);
    matcher.begin_step();
    auto place = matcher.op(name_hash("op"));
    std::vector<std::uint32_t> tensors;
    for (const auto bytes : sizes) tensors.push_back(matcher.allocation(place, bytes));
    return tensors;
  }
  static constexpr auto kNone = LiveTensor::kUnplanned;
};

TEST_F(StepMatcherSizes, ASmallerTensorIsTheOneWhoseTurnItIs) {
  EXPECT_EQ(matched({20480, 10240, 5120}), (std::vector{0u, 1u, 2u}));
  EXPECT_EQ(matched({20480, 10240, 5120}, OpOrder::any), (std::vector{kNone, kNone, kNone}));
}

TEST_F(StepMatcherSizes, SoIsALargerTensor) {
  EXPECT_EQ(matched({32832, 16384, 8192}), (std::vector{0u, 1u, 2u}));
  EXPECT_EQ(matched({32832, 20480, 5120}), (std::vector{0u, 1u, 2u}));
  EXPECT_EQ(matched({32832, 16384, 8192}, OpOrder::any), (std::vector{kNone, 1u, 2u}));
}

TEST_F(StepMatcherSizes, TheProfiledSizeCountsForMoreThanTheTurn) {
  EXPECT_EQ(matched({16384, 8192}), (std::vector{1u, 2u})) << "the first was not made";
  EXPECT_EQ(matched({64, 16384, 32768}), (std::vector{0u, 1u, 2u})) << "no role is given twice";
}

TEST_F(StepMatcherSizes, AFourthTensorIsNone) {
  EXPECT_EQ(matched({32768, 16384, 8192, 64}), (std::vector{0u, 1u, 2u, kNone}));
}

TEST(StepMatcher, OpsAreKnownWhateverTheyAllocate) {
  auto larger = step();
  for (auto& tensor : larger.tensors) tensor.bytes *= 3;
  const StepMatcher matcher(step()), other(larger);
  EXPECT_NE(matcher.signature(), other.signature());
  for (std::uint32_t op = 0; op <= kOps; ++op)
    EXPECT_EQ(matcher.ops_before(op), other.ops_before(op));
  EXPECT_EQ(matcher.ops_before(1), 0u);
  EXPECT_NE(matcher.ops_before(2), matcher.ops_before(3));
  EXPECT_EQ(matcher.ops_before(kOps + 1), 0u);
}

TEST(StepMatcherInAnyOrder, KnowsOpsByTheirNames) {
  StepMatcher matcher(step(), OpOrder::any);
  for (int times = 0; times < 2; ++times) {
    matcher.begin_step();
    for (std::uint32_t op = kOps - 1; op > 0; --op) {
      auto place = matcher.op(name(op));
      EXPECT_EQ(place.position, op);
      EXPECT_EQ(matcher.allocation(place, 4096 * (op + 1)), op);
    }
    EXPECT_EQ(matcher.op(name(1)).position, StepMatcher::kLost) << "there is only one";
    EXPECT_EQ(matcher.op(name_hash("new")).position, StepMatcher::kLost);
  }
}

TEST(StepMatcherInAnyOrder, AllocationsOfOpsThatRunTogetherAreToldApart) {
  auto profile = step();
  for (auto& tensor : profile.tensors) tensor.bytes = 4096;
  StepMatcher matcher(profile, OpOrder::any);
  matcher.begin_step();
  auto prelude = matcher.prelude(), first = matcher.op(name(7)), second = matcher.op(name(3));
  EXPECT_EQ(matcher.allocation(first, 4096), 7u);
  EXPECT_EQ(matcher.allocation(second, 4096), 3u);
  EXPECT_EQ(matcher.allocation(prelude, 4096), 0u);
  EXPECT_EQ(matcher.allocation(first, 4096), LiveTensor::kUnplanned);
}

TEST(StepMatcherInAnyOrder, NamesakesAreCounted) {
  Profile profile;
  for (const auto* each : {StepRecorder::kPrelude, "a", "b", "a"})
    profile.ops.push_back({.name = each});
  StepMatcher matcher(profile, OpOrder::any);
  matcher.begin_step();
  EXPECT_EQ(matcher.op(name_hash("a")).position, 1u);
  EXPECT_EQ(matcher.op(name_hash("a")).position, 3u);
  EXPECT_EQ(matcher.op(name_hash("b")).position, 2u);
}

TEST(StepMatcherInAnyOrder, ResemblesAStepThatDiffersInAFewBuffers) {
  const auto profile = step();
  std::uint64_t all = 0;
  for (const auto& tensor : profile.tensors) all += tensor.bytes;
  StepMatcher matcher(profile, OpOrder::any);
  // The step without what `without` allocates, and with `more` bytes of an op's that the profile
  // lacks.
  const auto comes = [&](std::uint32_t without, std::uint64_t more) {
    matcher.begin_step();
    for (std::uint32_t op = kOps; op-- > 0;)
      if (const auto bytes = profile.tensors[op].bytes; op != without)
        matcher.allocated(
            allocation_event(op == 0 ? name_hash(StepRecorder::kPrelude) : name(op), bytes), bytes);
    matcher.allocated(allocation_event(name_hash("new"), more), more);
    return matcher.resembles();
  };
  EXPECT_TRUE(comes(kOps, 0));
  EXPECT_TRUE(comes(1, 0)) << "a small one was reused";
  EXPECT_TRUE(comes(kOps, all / 20));
  EXPECT_FALSE(comes(kOps, all / 10));
  matcher.begin_step();
  EXPECT_FALSE(matcher.resembles()) << "nothing came";
  for (std::uint32_t op = 1; op < kOps; ++op)
    for (int times = 0; times < 2; ++times)
      matcher.allocated(allocation_event(name(op), 4096 * (op + 1)), 4096 * (op + 1));
  EXPECT_FALSE(matcher.resembles()) << "twice each";
  EXPECT_FALSE(StepMatcher(profile).resembles()) << "in sequence";
}

// Two kinds of step with the same ops: which it is shows in what an op allocates.
TEST(StepMatcherInAnyOrder, TakesOverFromAnotherKind) {
  Profile large, small;
  for (const auto* each : {StepRecorder::kPrelude, "a", "b", "a"})
    for (auto* profile : {&large, &small}) {
      const OpId op(static_cast<std::uint32_t>(profile->ops.size()));
      profile->ops.push_back({.name = each});
      profile->tensors.push_back({.bytes = profile == &large ? 8192u : 4096u, .alloc_op = op});
    }
  StepMatcher first(large, OpOrder::any), second(small, OpOrder::any);
  const auto a = name_hash("a"), event = allocation_event(a, 4096);
  EXPECT_FALSE(first.allocates(event));
  EXPECT_TRUE(second.allocates(event));
  first.begin_step();
  second.begin_step();
  first.op(a);
  first.op(name_hash("b"));
  first.op(a);
  auto place = second.take_over(first, a);
  EXPECT_EQ(place.position, 3u) << "the second of its name";
  EXPECT_EQ(second.allocation(place, 4096), 3u);
  EXPECT_EQ(second.op(a).position, StepMatcher::kLost) << "both have begun";
  EXPECT_EQ(second.take_over(first, name_hash("new")).position, StepMatcher::kLost);
}

}  // namespace
}  // namespace sentinel
