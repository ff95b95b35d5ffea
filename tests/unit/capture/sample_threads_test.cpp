// The rings as the kernel fills them. Page faults are sampled with their addresses on every
// machine, which serves where the processor's events are absent.
#include "capture/samples/sample_threads.h"

#include <gmock/gmock.h>
#include <sys/mman.h>

#include <barrier>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <thread>

#include "capture/samples/sample_source.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::size_t kPage = 4096;

SampleEvents page_faults() {
  SampleEvent event{.name = "page-faults",
                    .attr = {.type = PERF_TYPE_SOFTWARE,
                             .size = sizeof(perf_event_attr),
                             .config = PERF_COUNT_SW_PAGE_FAULTS,
                             .exclude_kernel = 1}};
  event.attr.sample_period = 1;
  event.attr.sample_type = kSampleType;
  return {.events = {event}};
}

// Memory whose every page faults once.
class Untouched {
 public:
  explicit Untouched(std::size_t pages)
      : bytes_(pages * kPage),
        at_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    madvise(at_, bytes_, MADV_NOHUGEPAGE);
  }
  ~Untouched() { munmap(at_, bytes_); }
  ArmRange range(std::uint32_t tag) const {
    return {reinterpret_cast<std::uintptr_t>(at_), bytes_, 1, tag};
  }
  void touch(std::size_t from, std::size_t to) {
    for (std::size_t page = from; page < to; ++page)
      static_cast<volatile unsigned char*>(at_)[page * kPage] = 1;
  }
  void forget() { madvise(at_, bytes_, MADV_DONTNEED); }

 private:
  std::size_t bytes_;
  void* at_;
};

// Does what it is told, one thing at a time.
class Worker {
 public:
  Worker() : thread_([this] { run(); }) {}
  ~Worker() { operator()({}), thread_.join(); }
  void operator()(std::function<void()> todo) {
    todo_ = std::move(todo);
    turn_.arrive_and_wait();
    turn_.arrive_and_wait();
  }

 private:
  void run() {
    for (bool more = true; more;) {
      turn_.arrive_and_wait();
      more = static_cast<bool>(todo_);
      if (more) todo_();
      turn_.arrive_and_wait();
    }
  }
  std::function<void()> todo_;
  std::barrier<> turn_{2};
  std::thread thread_;
};

class SampledFaults : public testing::Test {
 protected:
  void SetUp() override {
    try {
      source = std::make_unique<SampleSource>(page_faults());
    } catch (const Error& error) {
      GTEST_SKIP() << "page faults cannot be sampled here: " << error.what();
    }
    const ArmRange range = memory.range(1);
    ASSERT_EQ(source->arm({&range, 1}), 0);
  }
  std::uint64_t drained() {
    std::vector<PageCount> counts;
    EXPECT_EQ(source->drain(counts), 0);
    std::uint64_t sum = 0;
    for (const PageCount& count : counts) sum += count.reads;
    return sum;
  }
  Untouched memory{1000};
  std::unique_ptr<Worker> before = std::make_unique<Worker>();
  std::unique_ptr<SampleSource> source;
};

TEST_F(SampledFaults, EachIsCountedOnce) {
  memory.touch(0, 1000);
  EXPECT_EQ(drained(), 1000u);
  memory.touch(0, 1000);
  EXPECT_EQ(drained(), 0u);
  memory.forget();
  memory.touch(100, 300);
  EXPECT_EQ(drained(), 200u);
  EXPECT_EQ(source->info().missed, 0);
}

TEST_F(SampledFaults, OfThreadsThatWereThere) {
  (*before)([this] { memory.touch(0, 500); });
  memory.touch(500, 700);
  EXPECT_EQ(drained(), 700u);
}

TEST_F(SampledFaults, OfThreadsThatCameOnceTheyAreFound) {
  Worker after;
  EXPECT_EQ(drained(), 0u);
  after([this] { memory.touch(0, 500); });
  EXPECT_EQ(drained(), 500u);
}

TEST_F(SampledFaults, OfThreadsThatHaveEnded) {
  (*before)([this] { memory.touch(0, 500); });
  before.reset();
  EXPECT_EQ(drained(), 500u);
  for (int round = 0; round < 100; ++round) {
    std::thread([] {}).join();
    drained();
  }
  memory.touch(500, 501);
  EXPECT_EQ(drained(), 1u);
}

TEST_F(SampledFaults, ToTensorsThatAreGoneAreKept) {
  const ArmRange range = memory.range(1);
  memory.touch(0, 10);
  ASSERT_EQ(source->disarm({&range, 1}), 0);
  memory.touch(10, 20);
  EXPECT_EQ(drained(), 10u);
}

TEST_F(SampledFaults, AFullRingLosesAndSaysSo) {
  for (int round = 0; round < 40; ++round) {
    memory.touch(0, 1000);
    memory.forget();
  }
  const auto counted = drained();
  EXPECT_LT(counted, 40000u);
  EXPECT_GT(counted, 500u);
  memory.touch(0, 1);  // the next record tells how many were lost before it
  EXPECT_EQ(drained(), 1u);
  EXPECT_NEAR(source->info().missed, 1 - static_cast<double>(counted) / 40000, 0.01);
}

TEST_F(SampledFaults, NoDescriptorIsLeftOpen) {
  const auto open = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  source.reset();
  const auto at_first = open();
  { SampleSource again(page_faults()); }
  SampleEvents half = page_faults();
  half.events.push_back(half.events[0]);
  half.events[1].attr.type = ~0u;
  EXPECT_THROW(SampleSource{half}, Error);
  EXPECT_EQ(open(), at_first);
}

TEST_F(SampledFaults, EventsOfAThreadShareItsRing) {
  SampleEvents twice = page_faults();
  twice.events.push_back(twice.events[0]);
  source = std::make_unique<SampleSource>(twice);
  const ArmRange range = memory.range(1);
  ASSERT_EQ(source->arm({&range, 1}), 0);
  memory.touch(0, 100);
  EXPECT_EQ(drained(), 200u);
}

// Either this processor's events can be used, or everything says why not.
TEST(HardwareSamples, AreThereOrTheReasonIs) {
  const auto found = find_sample_events();
  if (!found.events.empty()) {
    EXPECT_NO_THROW(SampleSource{found});
    return;
  }
  EXPECT_FALSE(found.reason.empty());
  EXPECT_FALSE(found.remedy.empty());
  try {
    SampleSource source(found);
    FAIL() << "it was constructed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(found.reason));
  }
}

TEST(HardwareSamples, CountAProgramsAccesses) {
  const auto found = find_sample_events();
  if (found.events.empty()) GTEST_SKIP() << found.reason;
  Untouched memory(256);
  memory.touch(0, 256);
  SampleSource source(found);
  const ArmRange range = memory.range(1);
  ASSERT_EQ(source.arm({&range, 1}), 0);
  for (int round = 0; round < 200000; ++round) memory.touch(0, 256);
  std::vector<PageCount> counts;
  ASSERT_EQ(source.drain(counts), 0);
  ASSERT_EQ(counts.size(), 1u);
  EXPECT_GT(counts[0].writes, 0u);
}

}  // namespace
}  // namespace sentinel
