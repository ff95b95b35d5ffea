// The source over recorded buffers: which tag a sample goes to, and what becomes of those that are
// missing.
#include "capture/samples/sample_source.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "capture/recorder.h"
#include "contract/access_source.h"
#include "sentinel/error.h"
#include "unit/capture/recorded_ring.h"

namespace sentinel {
namespace {

constexpr std::uintptr_t kBase = 0x7f0000000000, kPage = 4096;

struct Recorded {
  static std::string absent() { return ""; }
  Recorded(std::size_t, std::uint32_t) : source_({rings_[0].view(), rings_[1].view()}, 1) {}
  AccessSource& source() { return source_; }
  std::uintptr_t page(std::size_t i) { return kBase + i * kPage; }
  void touch(std::size_t i, bool write, unsigned thread) {
    rings_[thread % 2].sample(page(i) + 123, write ? kPebsStoreL1 : kPebsLoadL1);
  }
  RecordedRing rings_[2];
  SampleSource source_;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Samples, AccessSourceContract, Recorded);

class Samples : public testing::Test {
 protected:
  static constexpr std::uint32_t kPeriod = 1000;
  void arm(std::uint32_t tag, std::size_t from, std::size_t pages) {
    const ArmRange range{kBase + from * kPage, pages * kPage, 1, tag};
    ASSERT_EQ(source.arm({&range, 1}), 0);
  }
  PageCount drained() {
    std::vector<PageCount> counts;
    EXPECT_EQ(source.drain(counts), 0);
    EXPECT_LE(counts.size(), 1u);
    return counts.empty() ? PageCount{} : counts[0];
  }
  RecordedRing ring;
  SampleSource source{{ring.view()}, kPeriod};
};

TEST_F(Samples, EachStandsForAPeriod) {
  arm(5, 0, 4);
  ring.sample(kBase, kIbsLoadL2);
  ring.sample(kBase + 4095, kPebsLoadRam);
  ring.sample(kBase + 3 * kPage, kIbsStore);
  const auto count = drained();
  EXPECT_EQ(count.tag, 5u);
  EXPECT_EQ(count.reads, 2000u);
  EXPECT_EQ(count.writes, 1000u);
  EXPECT_EQ(count.variance, 3e6);
}

TEST_F(Samples, OnlyAccessesOfThisProcessToArmedPagesCount) {
  arm(1, 0, 1);
  ring.sample(kBase + kPage, kPebsLoadL1);        // beyond it
  ring.sample(kBase - 1, kPebsLoadL1);            // before it
  ring.sample(0, kNotAvailable);                  // no memory operand
  ring.sample(0xffff888012345678, kIbsLoadL2);    // the kernel's
  ring.sample(kBase, kPebsLoadL1, getpid() + 1);  // another process's
  ring.sample(kBase, PERF_MEM_OP_PFETCH);         // a prefetch
  EXPECT_EQ(drained().reads + drained().writes, 0u);
  EXPECT_EQ(source.info().missed, 0);
}

// The next tensor at the same address is another one.
TEST_F(Samples, ASampleGoesToWhatWasArmedWhenItWasTaken) {
  arm(1, 0, 1);
  ring.sample(kBase, kPebsLoadL1);
  arm(2, 0, 1);
  ring.sample(kBase, kPebsStoreL1);
  std::vector<PageCount> counts;
  ASSERT_EQ(source.drain(counts), 0);
  ASSERT_EQ(counts.size(), 2u);
  std::ranges::sort(counts, {}, &PageCount::tag);
  EXPECT_EQ(counts[0].reads, 1000u);
  EXPECT_EQ(counts[1].writes, 1000u);
}

TEST_F(Samples, WhatWasLostIsMissed) {
  arm(1, 0, 1);
  for (int i = 0; i < 30; ++i) ring.sample(kBase, kPebsLoadL1);
  ring.lost(10);
  EXPECT_EQ(drained().reads, 30000u);
  EXPECT_DOUBLE_EQ(source.info().missed, 0.25);
}

TEST_F(Samples, DamageIsMissedByTheSamplesThatHadRoomInIt) {
  for (int i = 0; i < 30; ++i) ring.sample(kBase, kPebsLoadL1);
  for (int word = 0; word < 40; ++word) ring.put(0);
  drained();
  EXPECT_DOUBLE_EQ(source.info().missed, 0.25);
}

TEST_F(Samples, AThrottledEventMayHaveMissedATick) {
  ring.throttle();
  drained();
  EXPECT_GT(source.info().missed, 0);
  EXPECT_LE(source.info().missed, 1);
}

TEST_F(Samples, NonsenseNeverExceedsAll) {
  for (int i = 0; i < 100; ++i) ring.lost(~std::uint64_t{0});
  drained();
  EXPECT_LE(source.info().missed, 1);
}

TEST_F(Samples, TheyAreNoOpenings) {
  EXPECT_EQ(source.info().name, "samples");
  EXPECT_FALSE(source.info().exact);
  EXPECT_TRUE(source.info().reads_writes_apart);
}

TEST(SamplesAbsent, ConstructionSaysWhyAndWhatToDo) {
  const SampleEvents none{.reason = "there are none", .remedy = "do without"};
  try {
    SampleSource source(none);
    FAIL() << "it was constructed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("there are none (do without)"));
  }
}

// A step's accesses of known number, sampled once a period of random length as IBS does. Whatever
// the period, the sum is within two of the stated errors about 19 times in 20.
class SamplingError : public testing::TestWithParam<std::uint32_t> {};

TEST_P(SamplingError, CountsLieWithinIt) {
  constexpr int kSteps = 200, kTensors = 20;
  constexpr std::uint64_t kAccesses = 400000;  // of all tensors, their shares growing
  const std::uint32_t period = GetParam();
  std::mt19937_64 random(period);
  std::geometric_distribution<std::uint64_t> gap(1.0 / period);
  int within = 0;
  double squares = 0;
  for (int step = 0; step < kSteps; ++step) {
    RecordedRing ring(1 << 20);
    SampleSource source({ring.view()}, period);
    StepRecorder recorder;
    recorder.begin();
    std::vector<std::uint64_t> ends;
    for (std::uint32_t t = 0; t < kTensors; ++t) {
      const ArmRange range{kBase + t * kPage, kPage, 1,
                           recorder.allocated(StepRecorder::kPreludeOp, kPage, 0)};
      ASSERT_EQ(source.arm({&range, 1}), 0);
      ends.push_back(kAccesses * (t + 1) * (t + 2) / (kTensors * (kTensors + 1)));
    }
    for (std::uint64_t at = gap(random); at < kAccesses; at += 1 + gap(random)) {
      const auto t = std::ranges::upper_bound(ends, at) - ends.begin();
      ring.sample(kBase + static_cast<std::uintptr_t>(t) * kPage, kIbsLoadL2);
    }
    std::vector<PageCount> counts;
    ASSERT_EQ(source.drain(counts), 0);
    double sum = 0;
    for (const PageCount& count : counts) {
      recorder.opened(StepRecorder::kPreludeOp, count);
      sum += static_cast<double>(count.reads);
    }
    const double off = std::abs(sum - kAccesses) / kAccesses;
    within += off <= 2 * recorder.sample_error();
    squares += std::pow(off / recorder.sample_error(), 2);
  }
  EXPECT_GE(within, kSteps * 0.9);
  EXPECT_NEAR(std::sqrt(squares / kSteps), 1, 0.2);  // nor is it stated too large
}
INSTANTIATE_TEST_SUITE_P(Periods, SamplingError, testing::Values(50, 500, 2000));

}  // namespace
}  // namespace sentinel
