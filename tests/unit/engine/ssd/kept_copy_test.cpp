// Blocks that come back and leave unchanged leave without a write; a single byte that somebody
// wrote is never lost.
#include <sys/resource.h>

#include <random>
#include <vector>

#include "unit/engine/ssd/ssd_engine_fixture.h"

namespace sentinel {
namespace {

// As with what an optimizer updates each time it comes.
TEST(KeptCopy, IsHardlyTriedWhereItIsOfNoUse) {
  KeptCopy copy;
  int digests = 0;
  for (int leaves = 0; leaves < 1000; ++leaves) {
    copy.forget();
    if (!copy.wanted()) continue;
    ++digests;
    copy.keep({});
  }
  EXPECT_LT(digests, 1000 / 25);
  EXPECT_GT(digests, 1000 / 50);
}

// As with weights: read twice between two updates.
TEST(KeptCopy, IsAlwaysTriedWhereItIsOftenOfUse) {
  KeptCopy copy;
  for (int steps = 0; steps < 100; ++steps) {
    copy.forget();
    ASSERT_TRUE(copy.wanted());
    copy.keep({1, 2});
    ASSERT_TRUE(copy.is_of({1, 2}));
    EXPECT_FALSE(copy.is_of({2, 1}));
    copy.served();
    copy.served();
  }
}

class FileLimit {
 public:
  explicit FileLimit(std::uint64_t bytes) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit little{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  }
  ~FileLimit() { EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
};

class KeptCopyTest : public EngineTest {
 protected:
  static constexpr std::uint64_t kBlocks = 8;

  void SetUp() override {
    EngineTest::SetUp();
    if (engine) begin_with(kBlocks, 20);
  }

  std::uint64_t gone() const {
    const auto counters = engine->counters();
    return counters.demoted_bytes + counters.unwritten_bytes;
  }
  void leave() {
    const auto before = gone();
    engine->demote(at(0), kBlocks * kGranule);
    while (gone() < before + kBlocks * kGranule) usleep(1000);
  }
  void come() {
    engine->promote(at(0), kBlocks * kGranule);
    engine->await(at(0), kBlocks * kGranule);
  }
};

INSTANTIATE_TEST_SUITE_P(Mechanisms, KeptCopyTest,
                         ::testing::Values(Mode{"MoveUring", true, IoBackend::uring},
                                           Mode{"CopyThreads", false, IoBackend::threads}),
                         [](const auto& info) { return info.param.name; });

TEST_P(KeptCopyTest, WhatIsOnlyReadIsWrittenOnce) {
  for (int round = 0; round < 5; ++round) {
    leave();
    come();
    for (std::uint64_t b = 0; b < kBlocks; ++b) ASSERT_TRUE(intact(b)) << b;
  }
  EXPECT_EQ(engine->counters().demoted_bytes, kBlocks * kGranule);
  EXPECT_EQ(engine->counters().unwritten_bytes, 4 * kBlocks * kGranule);
}

TEST_P(KeptCopyTest, OneByteIsNeverLost) {
  std::mt19937_64 random(7);
  std::vector<char*> written;
  leave();
  for (int round = 0; round < 12; ++round) {
    come();
    auto* byte = reinterpret_cast<char*>(at(random() % kBlocks)) + random() % kGranule;
    *byte = static_cast<char>(~*byte);
    written.push_back(byte);
    leave();
  }
  EXPECT_GT(engine->counters().unwritten_bytes, 0u);
  come();
  for (auto* byte : written) *byte = static_cast<char>(~*byte);
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(intact(b)) << b;
}

TEST_P(KeptCopyTest, AChildReadsItsParentsWritesAndNoCopy) {
  leave();
  come();
  words(1)[5] = 1;
  leave();
  come();
  words(1)[5] = 2;
  engine->demote(at(4), 4 * kGranule);
  while (gone() < (2 * kBlocks + 4) * kGranule) usleep(1000);
  const auto check = [&] {
    const bool same = words(1)[5] == 2;
    words(1)[5] = value(1, 5);
    return same && intact(0) && intact(1) && intact(4) && intact(7);
  };
  const auto meanwhile = [&] {
    for (std::uint64_t b = 0; b < kBlocks; ++b) words(b)[9] = 3;
    for (int round = 0; round < 3; ++round) {
      engine->demote(at(0), 4 * kGranule);
      engine->promote(at(0), 4 * kGranule);
      engine->await(at(0), 4 * kGranule);
    }
  };
  EXPECT_EQ(status_of_child(check, meanwhile), 0);
}

// 80 slots: enough for 40 blocks that are absent and 16 on their way, and not for a copy of each of
// 100.
TEST_P(KeptCopyTest, CopiesMakeRoomWhereTheFileMayNotGrow) {
  constexpr std::uint64_t kTensors = 100;
  engine->set_budget(60 * kGranule);
  const FileLimit little(81 * kGranule);
  for (std::uint64_t b = kBlocks; b < kTensors; ++b) on_allocate(b), fill(b), engine->tick();
  for (int pass = 0; pass < 3; ++pass)
    for (std::uint64_t b = 0; b < kTensors; ++b) {
      engine->tick();
      ASSERT_TRUE(intact(b)) << b;
    }
}

// All go before the fork, so that what leaves after it is written.
TEST_P(KeptCopyTest, AChildHoldsNoCopies) {
  leave();
  come();
  const auto meanwhile = [&] { leave(); };
  EXPECT_EQ(status_of_child([&] { return intact(0) && intact(7); }, meanwhile), 0);
  EXPECT_EQ(engine->counters().unwritten_bytes, 0u);
}

// One tensor's copy is nothing to the next that lives there.
TEST_P(KeptCopyTest, ADeadTensorsCopyIsForgotten) {
  leave();
  come();
  engine->on_free(at(0), kBlocks * kGranule, true);
  for (std::uint64_t b = 0; b < kBlocks; ++b) on_allocate(b);
  for (std::uint64_t b = 0; b < kBlocks; ++b) words(b)[0] = ~b;
  engine->tick();
  leave();
  EXPECT_EQ(engine->counters().unwritten_bytes, 0u);
  come();
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_EQ(words(b)[0], ~b);
}

}  // namespace
}  // namespace sentinel
