#include "capture/recorder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace sentinel {
namespace {

constexpr std::uint64_t kPage = 4096;

class Recorder : public testing::Test {
 protected:
  void SetUp() override {
    recorder.begin();
    op = recorder.op_start("aten::mul", Phase::forward);
    tensor = recorder.allocated(op, 64 * kPage, 0);
  }
  StepRecorder recorder;
  StepRecorder::Op op = StepRecorder::kPreludeOp;
  StepRecorder::Record tensor = StepRecorder::kNone;
};

TEST_F(Recorder, NothingCountedOrCountedPageByPageHasNoSamplingError) {
  EXPECT_EQ(recorder.sample_error(), 0);
  recorder.opened(op, {.tag = tensor, .reads = 64, .even = 1});
  EXPECT_EQ(recorder.sample_error(), 0);
}

TEST_F(Recorder, HalvesThatAgreeHaveNoSamplingError) {
  recorder.sampled(tensor, 16);
  recorder.opened(op, {.tag = tensor, .reads = 32, .writes = 32, .even = 32});
  EXPECT_EQ(recorder.sample_error(), 0);
}

// 64 pages, of whose even half each was opened once and of the odd half none.
TEST_F(Recorder, HalvesThatDifferAreTheErrorOfTheirMean) {
  recorder.sampled(tensor, 16);
  recorder.opened(op, {.tag = tensor, .reads = 32, .even = 32});
  EXPECT_DOUBLE_EQ(recorder.sample_error(), 1);
}

TEST_F(Recorder, HalvesOfDifferentSizesAgreeByTheirPages) {
  const auto odd_sized = recorder.allocated(op, 5 * kPage, 0);  // runs of 2, 2 and 1: 3 even, 2 odd
  recorder.sampled(odd_sized, 2);
  recorder.opened(op, {.tag = odd_sized, .writes = 5, .even = 3});
  EXPECT_EQ(recorder.sample_error(), 0);
}

TEST_F(Recorder, ErrorsOfManyTensorsPartlyCancel) {
  constexpr int kTensors = 100;
  for (int i = 0; i < kTensors; ++i) {
    const auto each = recorder.allocated(op, 64 * kPage, 0);
    recorder.sampled(each, 16);
    recorder.opened(op, {.tag = each, .reads = 64, .even = i % 2 == 0 ? 48u : 16u});
  }
  EXPECT_NEAR(recorder.sample_error(), 0.5 / 10, 1e-12);
}

TEST_F(Recorder, CountsOfAnOpAddUp) {
  recorder.opened(op, {.tag = tensor, .reads = 3, .writes = 1});
  recorder.opened(op, {.tag = tensor, .reads = 4});
  const auto profile = recorder.profile({}, {});
  ASSERT_EQ(profile.accesses.size(), 1u);
  EXPECT_EQ(profile.accesses[0].reads, 7u);
  EXPECT_EQ(profile.accesses[0].writes, 1u);
  EXPECT_EQ(profile.accesses[0].op, OpId(1));  // op 0: what comes before the first
}

// A convolution's backward pass: copies of two operands, freed, then two of as many bytes.
TEST_F(Recorder, WhatAnOpMakesInThePlaceOfWhatItFreedIsOneTensor) {
  const auto backward = recorder.op_start("backward", Phase::backward);
  const auto first = recorder.allocated(backward, 2 * kPage, 0),
             beside = recorder.allocated(backward, 2 * kPage, 0);
  const auto result = recorder.allocated(backward, 3 * kPage, 0);
  recorder.freed(first);
  const auto again = recorder.allocated(backward, 2 * kPage, 0);
  recorder.freed(beside);
  const auto stays = recorder.allocated(backward, 2 * kPage, 0);
  recorder.freed(again);
  const auto smaller = recorder.allocated(backward, kPage, 0);
  recorder.op_uses(backward, again, true, false);
  recorder.opened(backward, {.tag = first, .writes = 2});
  recorder.opened(backward, {.tag = again, .writes = 2});
  const auto next = recorder.op_start("next", Phase::backward);
  recorder.freed(smaller);
  const auto of_next = recorder.allocated(next, 2 * kPage, 0);
  recorder.freed(stays);
  recorder.freed(result);

  const auto profile = recorder.profile({}, {});
  ASSERT_EQ(profile.tensors.size(), 6u);  // the fixture's; first, beside, result; smaller; of_next
  const Tensor& one = profile.tensors[1];
  EXPECT_EQ(one.again, std::vector<std::uint32_t>{3});
  EXPECT_EQ(one.free_op, OpId(backward));
  EXPECT_EQ(one.kind, TensorKind::workspace);
  const Tensor& two = profile.tensors[2];
  EXPECT_EQ(two.again, std::vector<std::uint32_t>{4});
  EXPECT_EQ(two.free_op, OpId(next)) << "the last one's";
  EXPECT_EQ(two.kind, TensorKind::intermediate);
  for (const std::size_t other : {0, 3, 4, 5}) EXPECT_TRUE(profile.tensors[other].again.empty());
  EXPECT_EQ(profile.tensors[5].alloc_op, OpId(next)) << "of another op, " << of_next;
  EXPECT_EQ(profile.ops[backward].in, std::vector{TensorId(1)});
  EXPECT_EQ(profile.ops[backward].out,
            (std::vector{TensorId(1), TensorId(2), TensorId(3), TensorId(4)}));
  ASSERT_EQ(profile.accesses.size(), 1u);
  EXPECT_EQ(profile.accesses[0], (AccessCount{TensorId(1), OpId(backward), 0, 4}));
  EXPECT_EQ(profile.natural.size(), profile.tensors.size());
}

// "a" makes 1 page and "b" 2, one after the other or at the same time.
StepRecorder step_of(bool a_first, bool together) {
  StepRecorder step;
  step.begin(OpOrder::any);
  const auto run = [&](const char* name) { return step.op_start(name, Phase::forward); };
  const auto first = run(a_first ? "a" : "b");
  if (!together) step.allocated(first, (a_first ? 1 : 2) * kPage, 0);
  const auto second = run(a_first ? "b" : "a");
  step.allocated(second, (a_first ? 2 : 1) * kPage, 0);
  if (together) step.allocated(first, (a_first ? 1 : 2) * kPage, 0);
  return step;
}

TEST(RecorderOfOpsThatRunTogether, SignatureIsNotTheOrder) {
  const auto signature = step_of(true, false).signature();
  EXPECT_EQ(step_of(false, false).signature(), signature);
  EXPECT_EQ(step_of(false, true).signature(), signature);
  StepRecorder other;
  other.begin(OpOrder::any);
  other.allocated(other.op_start("a", Phase::forward), 2 * kPage, 0);
  other.allocated(other.op_start("b", Phase::forward), 1 * kPage, 0);
  EXPECT_NE(other.signature(), signature) << "each op allocates what the other should";
}

TEST(RecorderOfOpsThatRunTogether, EachHasItsOwnTensors) {
  const auto profile = step_of(true, true).profile({}, {});
  ASSERT_EQ(profile.tensors.size(), 2u);
  for (const auto& tensor : profile.tensors) {
    EXPECT_EQ(profile.ops[tensor.alloc_op->index()].name, tensor.bytes == kPage ? "a" : "b");
    EXPECT_EQ(tensor.ordinal, 0u);
  }
}

TEST(RecorderOfOpTimes, WhatIsWaitedForMemoryIsNone) {
  StepRecorder step;
  step.begin();
  const auto before = std::chrono::steady_clock::now();
  const auto waits = step.op_start("waits", Phase::forward, 1e6);
  step.op_run(waits, 2e6);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto last = step.op_start("last", Phase::forward, 2e6 + 15e3);
  step.op_run(last, 2e6 + 15e3);
  step.op_end(last, 9e6);
  const std::chrono::duration<double, std::micro> all = std::chrono::steady_clock::now() - before;
  const auto ops = step.profile({}, {}).ops;
  ASSERT_EQ(ops.size(), 3u);
  EXPECT_GE(ops[1].us, 5e3);
  EXPECT_LE(ops[1].us, all.count() - 15e3);
  EXPECT_EQ(ops[2].us, 0) << "it waited for longer than it took";
}

TEST(RecorderOfOpsThatRunTogether, WhatIsCountedBelongsToTheOpThatNamesTheTensor) {
  StepRecorder step;
  step.begin();
  const auto a = step.op_start("a", Phase::forward);
  const auto of_a = step.allocated(a, kPage, 0);
  const auto b = step.op_start("b", Phase::forward);
  const auto of_b = step.allocated(b, kPage, 0);
  step.op_end(b);
  step.opened(b, {.tag = of_a, .reads = 1});
  step.opened(b, {.tag = of_b, .reads = 1});
  step.op_end(a);
  step.opened(a, {.tag = of_b, .writes = 1});  // nobody else is left
  const auto profile = step.profile({}, {});
  ASSERT_EQ(profile.accesses.size(), 3u);
  for (const auto& access : profile.accesses)
    EXPECT_EQ(access.op, OpId(access.tensor == TensorId(of_a) || access.writes != 0 ? a : b));
}

TEST(RecorderOfOpsThatRunTogether, TimesOfAnotherStepAreFoundByName) {
  const StepRecorder::Times times = {
      {name_hash(StepRecorder::kPrelude), {1}}, {name_hash("a"), {2}}, {name_hash("b"), {3}}};
  for (const bool a_first : {true, false})
    for (const auto& op : step_of(a_first, true).profile({}, times).ops)
      EXPECT_EQ(op.us, op.name == "a" ? 2 : op.name == "b" ? 3 : 1);
}

}  // namespace
}  // namespace sentinel
