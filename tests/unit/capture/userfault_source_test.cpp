#include "capture/userfault/userfault_source.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "unit/capture/counting_fixture.h"
#include "unit/capture/definition.h"

namespace sentinel {
namespace {

using UserfaultSourceTest = CountingTest;

TEST_F(UserfaultSourceTest, CyclesThroughMoreThanTheWindow) {
  const struct {
    std::uint32_t window;
    std::uint64_t openings;
  } expected[] = {{1, 100}, {4, 100}, {9, 100}, {10, 10}, {64, 10}, {1024, 10}};
  for (const auto& [window, openings] : expected) {
    track(16, window);
    for (int round = 0; round < 10; ++round)
      for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(touch(page(i)), Memory::mark(i));
    EXPECT_EQ(drained().reads, openings) << "window " << window;
  }
}

TEST_F(UserfaultSourceTest, AgreesWithTheDefinitionOnAnyOrder) {
  for (const std::uint32_t window : {1u, 4u, 63u, 64u, 100u, 1024u}) {
    track(200, window);
    const auto order = random_order(800, 200, window);
    for (const std::size_t i : order) ASSERT_EQ(touch(page(i)), Memory::mark(i));
    EXPECT_EQ(drained().reads, defined(order, window)) << "window " << window;
  }
}

// Several threads at once, each on pages of its own.
TEST_F(UserfaultSourceTest, ThreadsOnDisjointPagesAreCountedExactly) {
  constexpr std::size_t kThreads = 4, kOwn = 100;
  for (const std::uint32_t window : {1u, 4u, 70u, 1024u}) {
    track(kThreads * kOwn, window);
    std::uint64_t expected = 0;
    std::atomic<long> wrong{0};
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      auto order = random_order(500, kOwn, static_cast<unsigned>(t));
      expected += defined(order, window);
      threads.emplace_back([this, t, order, &wrong] {
        for (const std::size_t i : order)
          wrong += touch(page(t * kOwn + i)) != Memory::mark(t * kOwn + i);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(drained().reads, expected) << "window " << window;
  }
}

// Counts are not promised for shared pages; progress and contents are.
TEST_F(UserfaultSourceTest, ThreadsOnTheSamePagesGoOnAndSeeTheirWrites) {
  for (const std::uint32_t window : {1u, 64u}) {
    track(8, window);
    std::atomic<std::uint32_t>* const sum = reinterpret_cast<std::atomic<std::uint32_t>*>(page(0));
    std::vector<std::thread> threads;
    sum->store(0);
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (std::size_t i = 0; i < 300; ++i) {
          ++*sum;
          poke(page(1 + i % 7) + t, static_cast<unsigned char>(i));
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(sum->load(), 1200u);
    const PageCount count = drained();
    EXPECT_GE(count.reads + count.writes, 8u);
  }
}

TEST_F(UserfaultSourceTest, ContentsSurviveEveryArming) {
  track(64, 64);
  for (int round = 0; round < 50; ++round) {
    for (std::size_t i = 0; i < 64; ++i)
      poke(page(i) + round, static_cast<unsigned char>(i + round));
    const ArmRange all = range();
    ASSERT_EQ(source->arm({&all, 1}), 0);
  }
  for (std::size_t i = 0; i < 64; ++i)
    for (std::size_t round = 0; round < 50; ++round)
      ASSERT_EQ(touch(page(i) + round), static_cast<unsigned char>(i + round));
  EXPECT_EQ(drained().writes, 64u * 50);
}

TEST_F(UserfaultSourceTest, SampledCountsOfAStreamAreNearTheExactOnes) {
  constexpr std::size_t kPages = 20011;
  for (const std::uint32_t stride : {4u, 64u}) {
    track(kPages, 1024, stride);
    const std::uint64_t before = loop->faults();
    for (int pass = 0; pass < 3; ++pass)
      for (std::size_t i = 0; i < kPages; ++i) ASSERT_EQ(touch(page(i)), Memory::mark(i));
    EXPECT_NEAR(static_cast<double>(drained().reads), 3.0 * kPages, 0.05 * 3 * kPages);
    // An opening each time for the tracked, a block at once for the others.
    EXPECT_LT(loop->faults() - before, 4 * kPages / stride + 2 * kPages / 100 + 600);
  }
}

TEST_F(UserfaultSourceTest, UntrackedMemoryIsMappedABlockAtATime) {
  track(2048, 64);
  const ArmRange all = range();
  ASSERT_EQ(source->disarm({&all, 1}), 0);
  const std::uint64_t before = loop->faults();
  for (std::size_t i = 0; i < 2048; ++i) ASSERT_EQ(touch(page(i)), Memory::mark(i));
  // Five blocks at most, and the last one by halves where it reaches beyond the mapping.
  EXPECT_LE(loop->faults() - before, 5u + 9);
  EXPECT_EQ(drained().reads, 0u);
}

// Mapping the neighbours of an untracked page must not open a tracked one.
TEST_F(UserfaultSourceTest, NeighboursOfTrackedPagesDoNotOpenThem) {
  track(512, 64);
  const ArmRange front{memory->mapping.address(), 100 * kPage, 1, 1};
  const ArmRange back{memory->mapping.address(101), 411 * kPage, 1, 1};
  ASSERT_EQ(source->disarm({&front, 1}), 0);
  ASSERT_EQ(source->disarm({&back, 1}), 0);
  for (std::size_t i = 0; i < 512; ++i) ASSERT_EQ(touch(page(i)), Memory::mark(i));
  EXPECT_EQ(drained().reads, 1u);
}

TEST_F(UserfaultSourceTest, ADrainInTheMidstLosesNothing) {
  track(200, 64);
  std::atomic<bool> done{false};
  std::thread thread([&] {
    for (int round = 0; round < 20; ++round)
      for (std::size_t i = 0; i < 200; ++i) touch(page(i));
    done = true;
  });
  std::uint64_t reads = 0;
  while (!done) reads += drained().reads;
  thread.join();
  EXPECT_EQ(reads + drained().reads, 20u * 200);
}

// Not a test of speed: the figures are for whoever reads the log.
TEST_F(UserfaultSourceTest, ReportsWhatAnEventCosts) {
  constexpr std::size_t kPages = 4000;
  for (const auto& [window, stride] : {std::pair{64u, 1u}, {1024u, 64u}, {4u, 1u}}) {
    track(kPages, window, stride);
    for (std::size_t i = 0; i < kPages; ++i) touch(page(i));  // maps what is not tracked
    const auto events = loop->faults();
    const auto begin = std::chrono::steady_clock::now();
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t i = 0; i < kPages; ++i) touch(page(i));
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    std::printf("window %u stride %u: %.2f us an event, %.3f us a page\n", window, stride,
                took.count() / static_cast<double>(loop->faults() - events),
                took.count() / (2 * kPages));
  }
  EXPECT_GT(source->info().event_cost_us, 0);
}

}  // namespace
}  // namespace sentinel
