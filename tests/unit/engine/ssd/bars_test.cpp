// Counting an arena over an SSD where it lies: nothing is switched, and moving goes on meanwhile.
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "capture/userfault/rwp_source.h"
#include "unit/engine/ssd/ssd_engine_fixture.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kPages = kGranule / 4096;

class BarsTest : public EngineTest {
 protected:
  void begin_counting(std::uint32_t window = 1u << 20) {
    ASSERT_EQ(engine->start_barring(), 0);
    RwpSource::Options options;
    options.window_pages = window;
    options.populates = false;
    source = std::make_unique<RwpSource>(*engine->loop(), options);
    engine->count_with(&RwpSource::count, source.get());
  }
  void end_counting() {
    engine->count_with(nullptr, nullptr);
    source.reset();
    engine->stop_barring();
  }
  void TearDown() override {
    if (source) end_counting();
    engine.reset();
  }
  // All pages of the block, as those of a tensor of its number.
  int arm(std::uint64_t block, std::uint32_t stride = 1) {
    const ArmRange range{at(block), kGranule, stride, static_cast<std::uint32_t>(block)};
    return source->arm({&range, 1});
  }
  struct Openings {
    std::uint64_t reads = 0, writes = 0;
  };
  std::vector<Openings> drained(std::size_t blocks) {
    std::vector<PageCount> counts;
    EXPECT_EQ(source->drain(counts), 0);
    std::vector<Openings> sums(blocks);
    for (const auto& count : counts) {
      sums[count.tag].reads += count.reads;
      sums[count.tag].writes += count.writes;
    }
    return sums;
  }
  // As the kernel lists it.
  bool is_shared() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      std::uintptr_t begin = 0, end = 0;
      char dash = 0;
      std::string access;
      std::istringstream(line) >> std::hex >> begin >> dash >> end >> access;
      if (begin <= engine->arena() && engine->arena() < end) return access.back() == 's';
    }
    return false;
  }

  std::unique_ptr<RwpSource> source;
};

INSTANTIATE_TEST_SUITE_P(Bars, BarsTest,
                         ::testing::Values(Mode{"Bars", true, IoBackend::uring, true}),
                         [](const auto& info) { return info.param.name; });

TEST_P(BarsTest, FirstTouchesAreCountedAndTheMemoryStaysPrivate) {
  ASSERT_TRUE(engine->can_bar());
  begin_counting();
  for (std::uint64_t b = 0; b < 4; ++b) {
    on_allocate(b);
    ASSERT_EQ(arm(b), 0);
  }
  for (std::uint64_t b = 0; b < 3; ++b) fill(b);
  EXPECT_FALSE(engine->counting());
  EXPECT_FALSE(is_shared());
  const auto counts = drained(4);
  for (std::uint64_t b = 0; b < 3; ++b) {
    EXPECT_EQ(counts[b].writes, kPages) << b;
    EXPECT_EQ(counts[b].reads, 0u) << b;
  }
  EXPECT_EQ(counts[3].reads + counts[3].writes, 0u);
  end_counting();
  EXPECT_EQ(rwp.barred_pages(), 0u);
  for (std::uint64_t b = 0; b < 3; ++b) EXPECT_TRUE(intact(b)) << b;
  EXPECT_FALSE(is_shared());
}

// What leaves and comes back within the step is counted as though it had stayed.
TEST_P(BarsTest, BlocksThatLeaveInACountedStepAreCountedExactly) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 40; ++b) on_allocate(b), fill(b), engine->tick();
  const auto before = engine->counters().promoted_bytes;
  begin_counting(64);
  for (std::uint64_t b = 0; b < 40; ++b) ASSERT_EQ(arm(b), 0);
  for (int pass = 0; pass < 2; ++pass)
    for (std::uint64_t b = 0; b < 40; ++b) {
      ASSERT_TRUE(intact(b)) << b;
      engine->tick();
    }
  EXPECT_GT(engine->counters().promoted_bytes - before, 20 * kGranule);
  const auto counts = drained(40);
  for (std::uint64_t b = 0; b < 40; ++b) {
    EXPECT_EQ(counts[b].reads, 2 * kPages) << b;
    EXPECT_EQ(counts[b].writes, 0u) << b;
  }
  EXPECT_LE(engine->counters().peak_bytes, 20 * kGranule);
}

// A block in which nothing is armed costs one fault more as it arrives, not one for each page.
TEST_P(BarsTest, UntrackedBlocksAreUnbarredAsAWhole) {
  begin_counting();
  on_allocate(0);
  on_allocate(1);
  ASSERT_EQ(arm(1, 64), 0);
  const auto before = engine->loop()->faults();
  fill(0);
  EXPECT_LE(engine->loop()->faults() - before, 3u);
  fill(1);
  EXPECT_EQ(drained(2)[1].writes, kPages);  // of one page in 64
  EXPECT_LE(engine->loop()->faults() - before, 3u + 3 + 2 * kPages / 64);
}

TEST_P(BarsTest, AfterCountingNothingThatMovesStaysBarred) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 30; ++b) on_allocate(b), fill(b), engine->tick();
  begin_counting();
  for (std::uint64_t b = 0; b < 30; ++b) ASSERT_EQ(arm(b), 0);
  for (std::uint64_t b = 0; b < 10; ++b) ASSERT_TRUE(intact(b));
  end_counting();
  for (int pass = 0; pass < 2; ++pass)
    for (std::uint64_t b = 0; b < 30; ++b) {
      ASSERT_TRUE(intact(b)) << b;
      engine->tick();
    }
  while (rwp.barred_pages() != 0) usleep(1000);  // but for one that is on its way
}

TEST_P(BarsTest, AnotherThreadSeesItsWritesWhileStepsAreCounted) {
  for (std::uint64_t b = 0; b < 4; ++b) on_allocate(b), fill(b);
  std::atomic<bool> stop = false;
  std::atomic<int> bad = 0;
  std::thread reader([&] {
    while (!stop)
      for (std::uint64_t b = 0; b < 4; ++b) bad += !intact(b);
  });
  for (int round = 0; round < 5; ++round) {
    begin_counting(64);
    for (std::uint64_t b = 0; b < 4; ++b) ASSERT_EQ(arm(b), 0);
    usleep(10000);
    end_counting();
  }
  stop = true;
  reader.join();
  EXPECT_EQ(bad, 0);
}

// Counted memory is no other than what a child is always given.
TEST_P(BarsTest, AChildForkedInACountedStepHasItsParentsTensors) {
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 0; b < 30; ++b) on_allocate(b), fill(b), engine->tick();
  begin_counting();
  for (std::uint64_t b = 0; b < 30; ++b) ASSERT_EQ(arm(b), 0);
  const int status = status_of_child(
      [&] {
        bool same = true;
        for (std::uint64_t b = 0; b < 30; ++b) same &= intact(b);
        return same;
      },
      [] {});
  EXPECT_EQ(status, 0);
  for (std::uint64_t b = 0; b < 30; ++b) ASSERT_TRUE(intact(b)) << b;
  const auto counts = drained(30);
  for (std::uint64_t b = 0; b < 30; ++b) EXPECT_EQ(counts[b].reads, kPages) << b;
}

// The way that is left where this one fails, within one session.
TEST_P(BarsTest, TheSwitchIsStillThere) {
  for (std::uint64_t b = 0; b < 8; ++b) on_allocate(b), fill(b);
  ASSERT_EQ(engine->start_counting(), 0);
  EXPECT_TRUE(is_shared());
  EXPECT_FALSE(engine->can_bar());
  EXPECT_EQ(engine->start_barring(), -EOPNOTSUPP);
  ASSERT_EQ(engine->stop_counting(), 0);
  EXPECT_FALSE(is_shared());
  engine->set_budget(20 * kGranule);
  for (std::uint64_t b = 8; b < 40; ++b) on_allocate(b), fill(b), engine->tick();
  for (std::uint64_t b = 0; b < 40; ++b) ASSERT_TRUE(intact(b)) << b;
}

TEST_P(BarsTest, CopiedFramesAreNotCountedLikeThis) {
  engine.reset();
  rwp.closed();
  auto copied = options();
  copied.use_move = false;
  engine = std::make_unique<SsdEngine>(copied);
  EXPECT_FALSE(engine->can_bar());
  EXPECT_EQ(engine->start_barring(), -EOPNOTSUPP);
}

}  // namespace
}  // namespace sentinel
