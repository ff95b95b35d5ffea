// What every access source must do (include/sentinel/access_source.h). A source joins by a subject:
//
//   struct MySubject {
//     static std::string absent();        // why it cannot be tried here; empty: it can
//     MySubject(std::size_t pages, std::uint32_t window);
//     AccessSource& source();
//     std::uintptr_t page(std::size_t i);  // the address of the i-th of `pages` pages in a row
//     void touch(std::size_t i, bool write, unsigned thread);  // one access; thread 0 to 3
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Mine, AccessSourceContract, MySubject);
//
// A source that is not exact has to sample each access (a period of 1) or the first to each page
// after a drain; what is true of openings through a window alone is skipped.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sentinel/access_source.h"

namespace sentinel {

template <class Subject>
class AccessSourceContract : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why = Subject::absent();
    if (!why.empty()) GTEST_SKIP() << why;
  }
  void with(std::size_t pages, std::uint32_t window) {
    subject.reset();
    subject.emplace(pages, window);
  }
  int arm(std::size_t from, std::size_t pages, std::uint32_t tag, std::uint32_t stride = 1) {
    const ArmRange range = this->range(from, pages, tag, stride);
    return subject->source().arm({&range, 1});
  }
  int disarm(std::size_t from, std::size_t pages) {
    const ArmRange range = this->range(from, pages, 0, 1);
    return subject->source().disarm({&range, 1});
  }
  ArmRange range(std::size_t from, std::size_t pages, std::uint32_t tag, std::uint32_t stride) {
    return {subject->page(from), pages * 4096, stride, tag};
  }
  void read(std::initializer_list<std::size_t> order, unsigned thread = 0) {
    for (const std::size_t page : order) subject->touch(page, false, thread);
  }
  // Of one tag; everything else drained is dropped.
  PageCount drained(std::uint32_t tag) {
    std::vector<PageCount> counts;
    EXPECT_EQ(subject->source().drain(counts), 0);
    PageCount sum{tag, 0, 0};
    for (const PageCount& count : counts) {
      if (count.tag != tag) continue;
      sum.reads += count.reads;
      sum.writes += count.writes;
    }
    return sum;
  }
  bool counts_openings() { return subject->source().info().exact; }
  static constexpr const char* kAccesses = "this source counts no openings through a window";
  std::optional<Subject> subject;
};

TYPED_TEST_SUITE_P(AccessSourceContract);

// 1 2 1 3 1 2: a window of one holds only the last page, of two the last two that were opened.
TYPED_TEST_P(AccessSourceContract, CountsOpeningsThroughTheWindow) {
  const struct {
    std::uint32_t window;
    std::uint64_t openings;
  } expected[] = {{1, 6}, {2, 5}, {3, 3}, {4, 3}, {1024, 3}};
  for (const auto& [window, openings] : expected) {
    this->with(8, window);
    if (!this->counts_openings()) GTEST_SKIP() << this->kAccesses;
    ASSERT_EQ(this->arm(0, 8, 1), 0);
    this->read({1, 2, 1, 3, 1, 2});
    const PageCount count = this->drained(1);
    EXPECT_EQ(count.reads + count.writes, openings) << "window " << window;
  }
}

TYPED_TEST_P(AccessSourceContract, AnOpenPageIsNotCountedAgain) {
  this->with(4, 1);
  if (!this->counts_openings()) GTEST_SKIP() << this->kAccesses;
  ASSERT_EQ(this->arm(0, 4, 1), 0);
  this->read({2, 2, 2, 2});
  EXPECT_EQ(this->drained(1).reads, 1u);
}

TYPED_TEST_P(AccessSourceContract, TellsReadsFromWritesWhereItSaysSo) {
  this->with(4, 1);
  ASSERT_EQ(this->arm(0, 4, 1), 0);
  this->subject->touch(0, true, 0);
  this->subject->touch(1, false, 0);
  this->subject->touch(2, true, 0);
  const PageCount count = this->drained(1);
  EXPECT_EQ(count.reads + count.writes, 3u);
  if (this->subject->source().info().reads_writes_apart) {
    EXPECT_EQ(count.writes, 2u);
  }
}

TYPED_TEST_P(AccessSourceContract, CountsGoToTheTagOfTheRange) {
  this->with(8, 1024);
  ASSERT_EQ(this->arm(0, 4, 70000), 0);
  ASSERT_EQ(this->arm(4, 4, 5), 0);
  this->read({0, 4, 5, 6});
  std::vector<PageCount> counts;
  ASSERT_EQ(this->subject->source().drain(counts), 0);
  ASSERT_EQ(counts.size(), 2u);
  std::sort(counts.begin(), counts.end(),
            [](const PageCount& a, const PageCount& b) { return a.tag < b.tag; });
  EXPECT_EQ(counts[0].reads, 3u);
  EXPECT_EQ(counts[1].tag, 70000u);
  EXPECT_EQ(counts[1].reads, 1u);
}

TYPED_TEST_P(AccessSourceContract, ADrainTakesEachOpeningOnce) {
  this->with(8, 1);
  ASSERT_EQ(this->arm(0, 8, 1), 0);
  this->read({0, 1});
  EXPECT_EQ(this->drained(1).reads, 2u);
  EXPECT_EQ(this->drained(1).reads, 0u);
  this->read({2, 3, 4});
  EXPECT_EQ(this->drained(1).reads, 3u);
}

TYPED_TEST_P(AccessSourceContract, DrainingAppends) {
  this->with(2, 1);
  ASSERT_EQ(this->arm(0, 2, 1), 0);
  this->read({0});
  std::vector<PageCount> counts(3);
  ASSERT_EQ(this->subject->source().drain(counts), 0);
  EXPECT_EQ(counts.size(), 4u);
}

TYPED_TEST_P(AccessSourceContract, WhatIsDisarmedIsNotCounted) {
  this->with(8, 1);
  ASSERT_EQ(this->arm(0, 8, 1), 0);
  this->read({0, 1});
  ASSERT_EQ(this->disarm(0, 4), 0);
  this->read({0, 1, 2, 3, 5});
  EXPECT_EQ(this->drained(1).reads, 3u);  // openings before it are kept
}

TYPED_TEST_P(AccessSourceContract, ArmingAgainStartsAfresh) {
  this->with(4, 1024);
  if (!this->counts_openings()) GTEST_SKIP() << this->kAccesses;
  ASSERT_EQ(this->arm(0, 4, 1), 0);
  this->read({0, 1});
  ASSERT_EQ(this->arm(0, 4, 2), 0);
  this->read({0, 1, 0});
  std::vector<PageCount> counts;
  ASSERT_EQ(this->subject->source().drain(counts), 0);
  ASSERT_EQ(counts.size(), 2u);
  for (const PageCount& count : counts) EXPECT_EQ(count.reads, 2u) << count.tag;
}

// An entry of the window that was disarmed must not close the page's next life.
TYPED_TEST_P(AccessSourceContract, AnOldOpeningDoesNotCloseANewOne) {
  this->with(8, 2);
  if (!this->counts_openings()) GTEST_SKIP() << this->kAccesses;
  ASSERT_EQ(this->arm(0, 8, 1), 0);
  this->read({0, 1});
  ASSERT_EQ(this->arm(0, 1, 1), 0);
  this->read({0, 0});  // the first 0 leaves the window with this opening
  this->read({0});
  EXPECT_EQ(this->drained(1).reads, 3u);
}

TYPED_TEST_P(AccessSourceContract, EachThreadHasAWindowOfItsOwn) {
  this->with(8, 1);
  if (!this->counts_openings()) GTEST_SKIP() << this->kAccesses;
  ASSERT_EQ(this->arm(0, 8, 1), 0);
  for (int i = 0; i < 5; ++i) {
    this->read({0}, 0);
    this->read({4}, 1);
  }
  EXPECT_EQ(this->drained(1).reads, 2u);
  for (int i = 0; i < 5; ++i) {
    this->read({0, 1}, 0);
    this->read({4, 5}, 1);
  }
  EXPECT_EQ(this->drained(1).reads, 18u);  // 20, less the 0 and the 4 that were still open
}

// Each tracked page stands for the others of its run, so one pass over all counts them all.
TYPED_TEST_P(AccessSourceContract, SampledPagesStandForTheirRun) {
  for (const std::uint32_t stride : {2u, 7u, 64u, 1000u}) {
    this->with(300, 4096);
    ASSERT_EQ(this->arm(0, 300, 1, stride), 0);
    for (std::size_t page = 0; page < 300; ++page) this->read({page});
    EXPECT_EQ(this->drained(1).reads, 300u) << "stride " << stride;
  }
}

TYPED_TEST_P(AccessSourceContract, RefusesRangesThatAreNoPages) {
  this->with(4, 1);
  ArmRange range = this->range(0, 4, 1, 1);
  range.begin += 8;
  EXPECT_EQ(this->subject->source().arm({&range, 1}), -EINVAL);
  range = this->range(0, 4, 1, 0);
  EXPECT_EQ(this->subject->source().arm({&range, 1}), -EINVAL);
}

TYPED_TEST_P(AccessSourceContract, DescribesItself) {
  this->with(1, 64);
  const SourceInfo& info = this->subject->source().info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(info.page_bytes, 4096u);
}

REGISTER_TYPED_TEST_SUITE_P(AccessSourceContract, CountsOpeningsThroughTheWindow,
                            AnOpenPageIsNotCountedAgain, TellsReadsFromWritesWhereItSaysSo,
                            CountsGoToTheTagOfTheRange, ADrainTakesEachOpeningOnce, DrainingAppends,
                            WhatIsDisarmedIsNotCounted, ArmingAgainStartsAfresh,
                            AnOldOpeningDoesNotCloseANewOne, EachThreadHasAWindowOfItsOwn,
                            SampledPagesStandForTheirRun, RefusesRangesThatAreNoPages,
                            DescribesItself);

}  // namespace sentinel
