#include "capture/recorder.h"

#include <gtest/gtest.h>

namespace sentinel {
namespace {

constexpr std::uint64_t kPage = 4096;

class Recorder : public testing::Test {
 protected:
  void SetUp() override {
    recorder.begin();
    recorder.op_start("aten::mul", Phase::forward);
    tensor = recorder.allocated(64 * kPage, 0);
  }
  StepRecorder recorder;
  StepRecorder::Record tensor = StepRecorder::kNone;
};

TEST_F(Recorder, NothingCountedOrCountedPageByPageHasNoSamplingError) {
  EXPECT_EQ(recorder.sample_error(), 0);
  recorder.opened({.tag = tensor, .reads = 64, .even = 1});
  EXPECT_EQ(recorder.sample_error(), 0);
}

TEST_F(Recorder, HalvesThatAgreeHaveNoSamplingError) {
  recorder.sampled(tensor, 16);
  recorder.opened({.tag = tensor, .reads = 32, .writes = 32, .even = 32});
  EXPECT_EQ(recorder.sample_error(), 0);
}

// 64 pages, of whose even half each was opened once and of the odd half none.
TEST_F(Recorder, HalvesThatDifferAreTheErrorOfTheirMean) {
  recorder.sampled(tensor, 16);
  recorder.opened({.tag = tensor, .reads = 32, .even = 32});
  EXPECT_DOUBLE_EQ(recorder.sample_error(), 1);
}

TEST_F(Recorder, HalvesOfDifferentSizesAgreeByTheirPages) {
  const auto odd_sized = recorder.allocated(5 * kPage, 0);  // runs of 2, 2 and 1: 3 even, 2 odd
  recorder.sampled(odd_sized, 2);
  recorder.opened({.tag = odd_sized, .writes = 5, .even = 3});
  EXPECT_EQ(recorder.sample_error(), 0);
}

TEST_F(Recorder, ErrorsOfManyTensorsPartlyCancel) {
  constexpr int kTensors = 100;
  for (int i = 0; i < kTensors; ++i) {
    const auto each = recorder.allocated(64 * kPage, 0);
    recorder.sampled(each, 16);
    recorder.opened({.tag = each, .reads = 64, .even = i % 2 == 0 ? 48u : 16u});
  }
  EXPECT_NEAR(recorder.sample_error(), 0.5 / 10, 1e-12);
}

TEST_F(Recorder, CountsOfAnOpAddUp) {
  recorder.opened({.tag = tensor, .reads = 3, .writes = 1});
  recorder.opened({.tag = tensor, .reads = 4});
  const auto profile = recorder.profile({}, {});
  ASSERT_EQ(profile.accesses.size(), 1u);
  EXPECT_EQ(profile.accesses[0].reads, 7u);
  EXPECT_EQ(profile.accesses[0].writes, 1u);
  EXPECT_EQ(profile.accesses[0].op, OpId(1));  // op 0: what comes before the first
}

}  // namespace
}  // namespace sentinel
