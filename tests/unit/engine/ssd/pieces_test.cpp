#include "engine/ssd/pieces/pieces.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <vector>

#include "alloc/ranges.h"
#include "engine/host/limits.h"
#include "unit/engine/ssd/ssd_engine_fixture.h"

namespace sentinel {
namespace {

// As a normalization's backward pass does: one op goes over all blocks again and again, and uses a
// page of each image every time.
class StridingTest : public EngineTest {
 protected:
  static constexpr std::uint64_t kImage = 256_KiB, kPlane = 4_KiB;
  static constexpr std::size_t kDepth = 8;
  const std::uint64_t kBudget = SsdEngine::minimum_bytes(thread_count(), kDepth) / kGranule + 28;
  const std::uint64_t kBlocks = kBudget + 16;
  const std::uint64_t kMade = 4 * thread_count() + 8;  // more than what is spared as just come

  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    if ((kBlocks + kMade) * kGranule > kArena)
      GTEST_SKIP() << "too many processors for the test's arena";
    if (!engine->loop()->can_protect()) GTEST_SKIP() << "this kernel has no write protection";
    engine->set_budget(kBudget * kGranule);
    for (std::uint64_t b = 0; b < kBlocks; ++b) on_allocate(b), fill(b), engine->tick();
  }

  // Calls f(block, word) for the first word of each of the sweep's planes.
  template <class F>
  void sweep(std::uint64_t plane, F&& f) {
    for (std::uint64_t b = 0; b < kBlocks; ++b)
      for (std::uint64_t at = plane * kPlane; at < kGranule; at += kImage) f(b, at / 8);
  }
  void TearDown() override {
    if (engine == nullptr || IsSkipped()) return;
    EXPECT_GT(engine->counters().pieces, 0u);
  }

  bool sweeps_are_right(std::uint64_t count) {
    bool right = true;
    for (std::uint64_t plane = 0; plane < count; ++plane)
      sweep(plane, [&](auto b, auto i) { right = right && words(b)[i] == value(b, i); });
    return right;
  }
};

INSTANTIATE_TEST_SUITE_P(Mechanisms, StridingTest,
                         ::testing::Values(Mode{"MoveUring", true, IoBackend::uring},
                                           Mode{"MoveThreads", true, IoBackend::threads},
                                           Mode{"CopyUring", false, IoBackend::uring}),
                         [](const auto& info) { return info.param.name; });

// How soon the step is known depends on whose turn it is: of three fresh engines one has to be
// quick.
TEST_P(StridingTest, PiecesAreReadInsteadOfBlocks) {
  const auto least = 64 * (kBlocks - kBudget) * kGranule;  // if blocks were exchanged in each sweep
  auto fewest = ~std::uint64_t{0};
  for (int tries = 0; tries < 3 && fewest >= least / 4; ++tries) {
    if (tries != 0) SetUp();
    const auto before = engine->counters();
    EXPECT_TRUE(sweeps_are_right(64));
    const auto after = engine->counters();
    fewest = std::min(fewest, after.promoted_bytes - before.promoted_bytes);
    EXPECT_LE(after.peak_bytes, kBudget * kGranule);
  }
  EXPECT_LT(fewest, least / 4);
  engine->tick();
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(intact(b)) << b;
}

// As a normalization's gradient, which is written in every sweep, a page or two of each image.
TEST_P(StridingTest, WhatTheOpMakesMeanwhileIsKept) {
  for (std::uint64_t b = kBlocks; b < kBlocks + kMade; ++b) on_allocate(b);
  for (std::uint64_t plane = 0; plane < 64; ++plane) {
    sweep(plane, [&](auto b, auto i) { ASSERT_EQ(words(b)[i], value(b, i)); });
    for (std::uint64_t b = kBlocks; b < kBlocks + kMade; ++b) words(b)[plane] = value(b, plane);
  }
  for (std::uint64_t b = kBlocks; b < kBlocks + kMade; ++b)
    for (std::uint64_t plane = 0; plane < 64; ++plane) EXPECT_EQ(words(b)[plane], value(b, plane));
}

TEST_P(StridingTest, BlocksReadFromFrontToBackComeWholeAndAhead) {
  for (std::uint64_t b = 0; b < kBlocks; ++b) engine->touch(at(b), kGranule);
  const auto before = engine->counters();
  constexpr std::uint64_t kPasses = 4;
  for (std::uint64_t pass = 0; pass < kPasses; ++pass)
    for (std::uint64_t b = 0; b < kBlocks; ++b) ASSERT_TRUE(intact(b)) << b;
  const auto after = engine->counters();
  EXPECT_LT(after.demand_faults - before.demand_faults, kPasses * kBlocks * 3 / 4);
  EXPECT_LT(after.pieces - before.pieces, kPasses * kBlocks / 2);
}

TEST_P(StridingTest, OneTransferAtATimeIsEnough) {
  auto shallow = options();
  shallow.depth = 1;
  engine = std::make_unique<SsdEngine>(shallow);
  engine->set_budget(kBudget * kGranule);
  for (std::uint64_t b = 0; b < kBlocks; ++b) on_allocate(b), fill(b), engine->tick();
  EXPECT_TRUE(sweeps_are_right(64));
}

TEST_P(StridingTest, WhatIsWrittenInAPieceIsKept) {
  const auto written = [](auto b, auto plane) { return (b + plane) % 31 == 0; };
  for (std::uint64_t plane = 0; plane < 20; ++plane)
    sweep(plane, [&](auto b, auto i) {
      ASSERT_EQ(words(b)[i], value(b, i));
      if (written(b, plane)) words(b)[i] = ~value(b, i);
    });
  engine->tick();
  for (std::uint64_t plane = 0; plane < 20; ++plane)
    sweep(plane, [&](auto b, auto i) {
      ASSERT_EQ(words(b)[i], written(b, plane) ? ~value(b, i) : value(b, i));
      if (written(b, plane)) words(b)[i] = value(b, i);
    });
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(intact(b)) << b;
}

TEST_P(StridingTest, ThreadsReadAndWriteThemSideBySide) {
  std::atomic<int> bad = 0;
  const auto work = [&](std::uint64_t first) {  // planes of its own
    for (std::uint64_t plane = first; plane < 64; plane += 2)
      for (std::uint64_t b = 0; b < kBlocks; ++b)
        for (std::uint64_t at = plane * kPlane; at < kGranule; at += kImage) {
          bad += words(b)[at / 8] != value(b, at / 8);
          if (b % 5 == first) words(b)[at / 8] = value(b, at / 8) + 1;
          if (b % 5 == first) words(b)[at / 8] -= 1;
        }
  };
  std::thread other([&] { work(1); });
  work(0);
  other.join();
  EXPECT_EQ(bad, 0);
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(intact(b)) << b;
}

TEST_P(StridingTest, PiecesGoWithTheirTensor) {
  EXPECT_TRUE(sweeps_are_right(9));
  for (std::uint64_t b = 0; b < kBlocks; ++b) engine->on_free(at(b), kGranule, true);
  for (std::uint64_t b = 0; b < kBlocks; ++b) on_allocate(b), words(b)[1] = b;
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_EQ(words(b)[1], b);
}

TEST_P(StridingTest, CountingFindsBlocksWithPiecesAsTheyWere) {
  EXPECT_TRUE(sweeps_are_right(9));
  ASSERT_EQ(engine->start_counting(), 0);
  EXPECT_TRUE(sweeps_are_right(3));
  ASSERT_EQ(engine->stop_counting(), 0);
  EXPECT_TRUE(sweeps_are_right(20));
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(intact(b)) << b;
}

TEST_P(StridingTest, AChildFindsBlocksWithPiecesAsTheyWere) {
  EXPECT_TRUE(sweeps_are_right(9));
  const auto as_it_was = [&] {
    bool good = true;
    for (std::uint64_t b = 0; b < kBlocks; ++b) good = good && intact(b);
    return good;
  };
  EXPECT_EQ(status_of_child(as_it_was, [&] { EXPECT_TRUE(sweeps_are_right(20)); }), 0);
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(intact(b)) << b;
}

TEST_P(StridingTest, AFailingDiskStopsTrainingInAPieceToo) {
  engine.reset();
  const auto stride = [&](const char* fault, ChecksumLevel checksums) {
    auto failing = options();
    failing.inject = fault;
    failing.checksums = checksums;
    engine = std::make_unique<SsdEngine>(failing);
    engine->set_budget(kBudget * kGranule);
    for (std::uint64_t b = 0; b < kBlocks; ++b) on_allocate(b), fill(b), engine->tick();
    _exit(sweeps_are_right(64) ? 0 : 1);
  };
  // There are less than 500 reads of whole blocks.
  EXPECT_EXIT(stride("read:500:EIO", ChecksumLevel::off), ::testing::ExitedWithCode(125),
              "could not read a part of a tensor back");
  for (const auto level : {ChecksumLevel::sampled, ChecksumLevel::full})
    EXPECT_EXIT(stride("read:500:flip", level), ::testing::ExitedWithCode(125),
                "could not read a part of a tensor back.*gave back other bytes than were written")
        << static_cast<int>(level);
}

// Also where a kernel puts no pieces in their place: of a part that comes back its own bytes are
// compared, and no others.
TEST(Pieces, OtherBytesInAPartAreNoticed) {
  for (const auto level : {ChecksumLevel::off, ChecksumLevel::sampled, ChecksumLevel::full})
    for (const char* fault : {"", "read:1:flip"}) {
      SlowFile file({.directory = "/var/tmp", .frame_bytes = kGranule, .checksums = level});
      std::vector<char> frame(kGranule, 7);
      const auto slot = file.reserve();
      const auto write = [&] {
        return pwrite(file.descriptor(slot), frame.data(), kGranule,
                      static_cast<off_t>(file.offset(slot))) == static_cast<ssize_t>(kGranule);
      };
      fcntl(file.descriptor(slot), F_SETFL, 0);  // the vector lies where it lies
      file.checksums().take(slot, frame.data());
      frame[3 * Pieces::kBytes] ^= 1;  // in the fourth, by another process or the drive
      ASSERT_TRUE(write());
      const auto loop = FaultLoop::open();
      const auto arena = reserve_anonymous(kGranule, kGranule);
      {
        Pieces pieces(*loop, arena, kGranule);
        pieces.open(make_executor(file, {.backend = IoBackend::threads,
                                         .depth = Pieces::kBatch * Pieces::kBatches,
                                         .frame_bytes = kGranule,
                                         .inject = fault}),
                    file.checksums());
        pieces.set_limit(8, 1);
        for (int frames = 0; frames < 8; ++frames) pieces.add_frame();
        const auto sound = [&](std::uint32_t piece, std::uint64_t op) {
          EXPECT_TRUE(pieces.worth(0, piece, op));
          pieces.choose(0, piece, [&](BlockIndex block) { return block == 0 ? slot : -1; });
          EXPECT_EQ(pieces.read(), 0);
          const bool is = pieces.sound();
          pieces.put();
          return is;
        };
        const bool compared = level != ChecksumLevel::off;
        EXPECT_EQ(sound(1, 1), *fault == '\0' || !compared);
        EXPECT_TRUE(sound(1, 2));
        EXPECT_EQ(sound(3, 3), !compared);
      }
      munmap(reinterpret_cast<void*>(arena), kGranule);
    }
}

TEST_P(StridingTest, ABlockThatIsPromotedTakesThePlaceOfItsPieces) {
  EXPECT_TRUE(sweeps_are_right(9));
  engine->tick();
  for (std::uint64_t b = 0; b < 20; ++b) engine->demote(at(b), kGranule);
  for (std::uint64_t b = 0; b < 20; ++b) engine->promote(at(b), kGranule);
  engine->await(at(0), 20 * kGranule);
  for (std::uint64_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(intact(b)) << b;
}

}  // namespace
}  // namespace sentinel
