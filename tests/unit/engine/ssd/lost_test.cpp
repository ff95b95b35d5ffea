// Blocks whose contents were given up, for somebody can make them again.
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "unit/engine/ssd/ssd_engine_fixture.h"

namespace sentinel {
namespace {

// Fills what is touched, from a thread of its own, with what the blocks of the fixture hold.
class Filler final : public Remaker {
 public:
  explicit Filler(Engine& engine) : engine_(engine), thread_([this] { run(); }) {
    engine.remake_with(this);
  }
  ~Filler() {
    {
      const std::lock_guard guard(lock_);
      ends_ = true;
    }
    told_.notify_all();
    thread_.join();
    engine_.remake_with(nullptr);
  }
  void touched(std::uintptr_t address) noexcept override {
    const std::lock_guard guard(lock_);
    touches_.push_back(address);
    ++count;
    told_.notify_all();
  }
  void fill(std::uint64_t block) {
    std::vector<std::uint64_t> words(kGranule / 8);
    for (std::uint64_t i = 0; i < words.size(); ++i) words[i] = block * 1000003 + i;
    engine_.refill(engine_.arena() + block * kGranule, kGranule, words.data());
  }
  std::atomic<int> count = 0;

 private:
  void run() {
    std::unique_lock guard(lock_);
    while (true) {
      told_.wait(guard, [this] { return ends_ || !touches_.empty(); });
      if (touches_.empty()) return;
      const auto address = touches_.front();
      touches_.pop_front();
      guard.unlock();
      fill((address - engine_.arena()) / kGranule);
      guard.lock();
    }
  }

  Engine& engine_;
  std::mutex lock_;
  std::condition_variable told_;
  std::deque<std::uintptr_t> touches_;
  bool ends_ = false;
  std::thread thread_;
};

class LostTest : public EngineTest {
 protected:
  static constexpr std::uint64_t kBlocks = 8;

  void SetUp() override {
    EngineTest::SetUp();
    if (!engine) return;
    filler.emplace(*engine);
    begin_with(kBlocks, 20);
  }
  void TearDown() override { filler.reset(); }
  std::uint64_t discard(std::uintptr_t address, std::uint64_t bytes, Engine::Ends ends = {}) {
    return engine->discard(address, bytes, ends);
  }
  void demote_all() {
    engine->demote(at(0), kBlocks * kGranule);
    while (engine->counters().demoted_bytes < kBlocks * kGranule) usleep(1000);
  }

  std::optional<Filler> filler;
};

INSTANTIATE_TEST_SUITE_P(Mechanisms, LostTest,
                         ::testing::Values(Mode{"MoveUring", true, IoBackend::uring},
                                           Mode{"CopyThreads", false, IoBackend::threads}),
                         [](const auto& info) { return info.param.name; });

TEST_P(LostTest, WhatIsDiscardedFreesItsFramesAndIsNotWritten) {
  EXPECT_EQ(discard(at(0), kBlocks * kGranule), kBlocks * kGranule);
  EXPECT_EQ(engine->counters().demoted_bytes, 0u);
  EXPECT_EQ(engine->counters().discarded_bytes, kBlocks * kGranule);
  engine->set_budget(12 * kGranule);  // its frames are there for others
  for (std::uint64_t b = 20; b < 30; ++b) on_allocate(b), fill(b);
  EXPECT_EQ(engine->counters().demoted_bytes, 0u);
}

TEST_P(LostTest, RefilledIsThereWithoutAFault) {
  ASSERT_EQ(discard(at(0), kBlocks * kGranule), kBlocks * kGranule);
  for (std::uint64_t b = 0; b < kBlocks; ++b) filler->fill(b);
  const auto faults = engine->counters().demand_faults;
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(intact(b)) << b;
  EXPECT_EQ(engine->counters().demand_faults, faults);
  EXPECT_EQ(engine->counters().refilled_bytes, kBlocks * kGranule);
  EXPECT_EQ(filler->count, 0);
}

TEST_P(LostTest, WhatIsAbsentLosesItsSlot) {
  demote_all();
  ASSERT_EQ(discard(at(0), kBlocks * kGranule), kBlocks * kGranule);
  engine->promote(at(0), kBlocks * kGranule);  // reads nothing
  engine->await(at(0), kBlocks * kGranule);    // and waits for nothing
  EXPECT_EQ(engine->counters().promoted_bytes, 0u);
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(intact(b)) << b;
  EXPECT_EQ(filler->count, static_cast<int>(kBlocks));
}

TEST_P(LostTest, ATouchWaitsForTheRefill) {
  ASSERT_EQ(discard(at(0), kBlocks * kGranule), kBlocks * kGranule);
  std::vector<std::jthread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (std::uint64_t b = 0; b < kBlocks; ++b) wrong += intact(b) ? 0 : 1;
    });
  threads.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(filler->count, static_cast<int>(kBlocks)) << "once a block";
}

TEST_P(LostTest, ASystemCallWaitsAsWell) {
  ASSERT_EQ(discard(at(0), kGranule), kGranule);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::uint64_t read_back[64];
  ASSERT_EQ(write(ends[1], words(0), sizeof read_back), static_cast<ssize_t>(sizeof read_back));
  ASSERT_EQ(read(ends[0], read_back, sizeof read_back), static_cast<ssize_t>(sizeof read_back));
  EXPECT_EQ(std::memcmp(read_back, words(0), sizeof read_back), 0);
  EXPECT_TRUE(intact(0));
  close(ends[0]), close(ends[1]);
}

TEST_P(LostTest, BlocksThatOthersShareStay) {
  engine->on_allocate(at(2) + 4096, 4096);
  EXPECT_EQ(discard(at(1), 4 * kGranule), 3 * kGranule);
  EXPECT_TRUE(intact(2));
  EXPECT_EQ(filler->count, 0);
  EXPECT_TRUE(intact(1) && intact(3) && intact(4));
  EXPECT_EQ(filler->count, 3);
}

// A tensor that ends within a block, and what the engine has of it.
class LostEndTest : public LostTest {
 protected:
  static constexpr std::uint64_t kBytes = kGranule + 4096 + 64;

  std::uintptr_t tensor() { return at(20) + 128; }
  unsigned char* bytes() { return reinterpret_cast<unsigned char*>(tensor()); }
  void SetUp() override {
    LostTest::SetUp();
    if (!engine) return;
    engine->on_allocate(tensor(), kBytes);
    contents.resize(kBytes);
    for (std::uint64_t i = 0; i < kBytes; ++i) bytes()[i] = contents[i] = value_of(i);
    engine->tick();
    engine->await(tensor(), kBytes);
  }
  static unsigned char value_of(std::uint64_t i) { return static_cast<unsigned char>(i * 31 + 7); }
  void refill() { engine->refill(tensor(), kBytes, contents.data()); }
  bool is_there() { return std::memcmp(bytes(), contents.data(), kBytes) == 0; }

  std::vector<unsigned char> contents;
};

INSTANTIATE_TEST_SUITE_P(Mechanisms, LostEndTest,
                         ::testing::Values(Mode{"MoveUring", true, IoBackend::uring},
                                           Mode{"CopyThreads", false, IoBackend::threads}),
                         [](const auto& info) { return info.param.name; });

TEST_P(LostEndTest, BothEndsAreLostAndFilledAgain) {
  EXPECT_EQ(discard(tensor(), kBytes), 2 * kGranule);
  refill();
  EXPECT_TRUE(is_there());
  EXPECT_EQ(filler->count, 0);
  EXPECT_EQ(bytes()[-1], 0);
  EXPECT_EQ(bytes()[kBytes], 0);
}

TEST_P(LostEndTest, AnEndThatMayNotGoStays) {
  EXPECT_EQ(discard(tensor(), kBytes, {.first = true, .last = false}), kGranule);
  refill();
  EXPECT_EQ(discard(tensor(), kBytes, {.first = false, .last = true}), kGranule);
  refill();
  EXPECT_EQ(discard(tensor(), kBytes, {.first = false, .last = false}), 0u);
  EXPECT_TRUE(is_there());
  EXPECT_EQ(filler->count, 0);
}

TEST_P(LostEndTest, AnotherThatBeginsInAnEndHasTheTensorMadeAgain) {
  ASSERT_EQ(discard(tensor(), kBytes), 2 * kGranule);
  auto* other = bytes() + kBytes + 64;
  engine->on_allocate(reinterpret_cast<std::uintptr_t>(other), 4096);
  std::jthread writes([&] { std::memset(other, 9, 4096); });
  while (filler->count == 0) usleep(1000);  // the filler fills blocks of its own, not this one
  refill();
  writes.join();
  EXPECT_TRUE(is_there());
  for (int i = 0; i < 4096; ++i) ASSERT_EQ(other[i], 9);
}

TEST_P(LostEndTest, WhatBeganInAnEndOutlivesTheTensor) {
  ASSERT_EQ(discard(tensor(), kBytes), 2 * kGranule);
  auto* other = bytes() + kBytes + 64;
  engine->on_allocate(reinterpret_cast<std::uintptr_t>(other), 4096);
  engine->on_free(tensor(), kBytes, true);
  std::memset(other, 9, 4096);
  EXPECT_EQ(other[4095], 9);
  EXPECT_EQ(filler->count, 0);
}

TEST_P(LostEndTest, WhatBeganInAnEndLeavesTheTensorLost) {
  ASSERT_EQ(discard(tensor(), kBytes), 2 * kGranule);
  const auto other = tensor() + kBytes + 64;
  engine->on_allocate(other, 4096);
  engine->on_free(other, 4096, true);
  engine->overwrite(other, 4096);
  refill();
  EXPECT_TRUE(is_there());
}

TEST_P(LostEndTest, ATensorThatIsOverwrittenIsLostNoMore) {
  ASSERT_EQ(discard(tensor(), kBytes), 2 * kGranule);
  const auto other = tensor() + kBytes + 64;
  engine->on_allocate(other, 4096);
  engine->overwrite(tensor(), kBytes);
  std::memcpy(bytes(), contents.data(), kBytes);
  EXPECT_TRUE(is_there());
  EXPECT_EQ(filler->count, 0);
}

TEST_P(LostTest, TheDeadAreEmptyAndServeAgain) {
  ASSERT_EQ(discard(at(0), kBlocks * kGranule), kBlocks * kGranule);
  engine->on_free(at(0), kGranule, true);
  for (std::uint64_t b = 1; b < kBlocks; ++b) engine->on_free(at(b), kGranule, true);
  for (std::uint64_t b = 0; b < kBlocks; ++b) on_allocate(b), fill(b);
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(intact(b));
  EXPECT_EQ(filler->count, 0);
}

TEST_P(LostTest, WhatIsOverwrittenIsNotMadeAgain) {
  ASSERT_EQ(discard(at(0), kGranule), kGranule);
  engine->overwrite(at(0), kGranule);
  fill(0);
  EXPECT_TRUE(intact(0));
  EXPECT_EQ(filler->count, 0);
}

TEST_P(LostTest, ARefillFromTheArenaItself) {
  on_allocate(30);
  std::memcpy(words(30), words(3), kGranule);
  ASSERT_EQ(discard(at(3), kGranule), kGranule);
  engine->tick();
  engine->demote(at(30), kGranule);                // the source has to be fetched first
  while (engine->counters().demoted_bytes == 0) {  // its arrival may not have been noted yet
    engine->promote(at(30), kGranule);
    engine->demote(at(30), kGranule);
    usleep(1000);
  }
  engine->refill(at(3), kGranule, words(30));
  EXPECT_TRUE(intact(3));
  EXPECT_EQ(filler->count, 0);
}

TEST_P(LostTest, NothingIsCountedWhileSomethingIsLost) {
  if (engine->loop() == nullptr || !engine->loop()->can_count()) GTEST_SKIP() << "cannot count";
  ASSERT_EQ(discard(at(0), kGranule), kGranule);
  EXPECT_EQ(engine->start_counting(), -EBUSY);
  filler->fill(0);
  ASSERT_EQ(engine->start_counting(), 0);
  EXPECT_EQ(discard(at(0), kGranule), 0u);
  ASSERT_EQ(engine->stop_counting(), 0);
  EXPECT_TRUE(intact(0));
}

TEST_P(LostTest, AChildHasNoArenaWhileSomethingIsLost) {
  ASSERT_EQ(discard(at(0), kGranule), kGranule);
  const int status = status_of_child(
      [this] {
        std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would exit
        return intact(1);
      },
      [] {});
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_TRUE(intact(0));
}

TEST_P(LostTest, WithoutSomebodyWhoRemakesNothingIsLost) {
  engine->remake_with(nullptr);
  EXPECT_EQ(discard(at(0), kBlocks * kGranule), 0u);
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(intact(b));
}

// Whatever happens in whatever order, each touch finds what was written last.
TEST_P(LostTest, RandomActionsLoseNothing) {
  constexpr std::uint64_t kMany = 48;
  for (std::uint64_t b = 0; b < kBlocks; ++b) engine->on_free(at(b), kGranule, true);
  engine->set_budget(std::max<std::uint64_t>(SsdEngine::minimum_bytes(4, 8), 16 * kGranule));
  std::mt19937 random(7);
  std::vector<bool> lives(kMany), wanted(kMany);
  std::atomic<bool> ends = false;
  std::atomic<int> wrong = 0;
  for (std::uint64_t b = 0; b < 4; ++b) on_allocate(kMany + b), fill(kMany + b);
  std::jthread other([&] {  // reads what nobody frees
    std::mt19937 own(8);
    while (!ends) wrong += intact(kMany + own() % 4) ? 0 : 1;
  });
  const auto block = [&](std::uint64_t b) { return at(b); };
  for (int action = 0; action < 6000; ++action) {
    const std::uint64_t b = random() % kMany;
    if (!lives[b]) {
      wanted[b] = engine->on_allocate(block(b), kGranule);
      lives[b] = true;
      fill(b);
      continue;
    }
    switch (random() % 8) {
      case 0:
        engine->on_free(block(b), kGranule, wanted[b]);
        lives[b] = false;
        break;
      case 1:
        if (wanted[b]) engine->demote(block(b), kGranule);
        wanted[b] = false;
        break;
      case 2:
        if (!wanted[b]) engine->promote(block(b), kGranule);
        wanted[b] = true;
        break;
      case 3:
      case 4:
        discard(block(b), kGranule);
        break;
      case 5:
        filler->fill(b);
        break;
      case 6:
        discard(block(kMany + random() % 4), kGranule);
        break;
      default:
        if (random() % 4 == 0 && !intact(b)) ++wrong;
        engine->tick();
    }
  }
  ends = true;
  for (std::uint64_t b = 0; b < kMany; ++b) wrong += lives[b] && !intact(b) ? 1 : 0;
  EXPECT_EQ(wrong, 0);
  const auto counters = engine->counters();
  EXPECT_GT(counters.discarded_bytes, 100 * kGranule);
  EXPECT_GT(counters.refilled_bytes, 100 * kGranule);
  EXPECT_LE(counters.peak_bytes,
            std::max<std::uint64_t>(SsdEngine::minimum_bytes(4, 8), 20 * kGranule));
}

}  // namespace
}  // namespace sentinel
