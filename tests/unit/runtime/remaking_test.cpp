// Random programs whose tensors are discarded and made again at random places give the bytes of
// plain ones; with a fault injected they do, or the process ends with 125.
#include "runtime/replay/remaking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <set>

#include "base/units.h"
#include "engine/ssd/ssd_engine.h"
#include "replayed_program.h"
#include "runtime/limit/voice.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

using test::ByteReplayer;
using test::ProgramOptions;
using test::Remade;
using test::ReplayedProgram;
using test::Word;

// Blocks of 4 KiB. What is lost is scribbled over at once, and nothing guards it.
class ScribblingEngine final : public Engine {
 public:
  static constexpr std::uint64_t kBlock = 4096;

  ScribblingEngine() {
    arena_bytes_ = 64_MiB, granule_ = kBlock;
    arena_ = reinterpret_cast<std::uintptr_t>(
        mmap(nullptr, arena_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~ScribblingEngine() override { munmap(reinterpret_cast<void*>(arena_), arena_bytes_); }

  std::uint64_t discard(std::uintptr_t address, std::uint64_t bytes, Ends) noexcept override {
    std::uint64_t lost = 0;
    each_block(address, bytes, [&](std::uintptr_t block) {
      std::memset(reinterpret_cast<void*>(block), 0xd5, kBlock);
      lost_.insert(block);
      lost += kBlock;
    });
    return lost;
  }
  void refill(std::uintptr_t address, std::uint64_t bytes, const void* source) noexcept override {
    each_block(address, bytes, [&](std::uintptr_t block) {
      if (lost_.erase(block) != 0)
        std::memcpy(reinterpret_cast<void*>(block),
                    static_cast<const char*>(source) + (block - address), kBlock);
    });
  }
  void overwrite(std::uintptr_t address, std::uint64_t bytes) noexcept override {
    forget(address, bytes);
  }
  bool on_free(std::uintptr_t address, std::uint64_t bytes, bool) noexcept override {
    forget(address, bytes);
    return true;
  }
  bool nothing_is_lost() const { return lost_.empty(); }

  bool on_allocate(std::uintptr_t, std::uint64_t) noexcept override { return true; }
  void set_budget(std::uint64_t) override {}
  void demote(std::uintptr_t, std::uint64_t) noexcept override {}
  void promote(std::uintptr_t, std::uint64_t) noexcept override {}
  void await(std::uintptr_t, std::uint64_t) noexcept override {}
  void before_fork() noexcept override {}
  void after_fork_in_parent() noexcept override {}
  void after_fork_in_child() noexcept override {}
  EngineCounters counters() const override { return {}; }

 private:
  template <class F>
  static void each_block(std::uintptr_t address, std::uint64_t bytes, F f) {
    for (auto block = round_up(address, kBlock); block + kBlock <= address + bytes; block += kBlock)
      f(block);
  }
  void forget(std::uintptr_t address, std::uint64_t bytes) {
    each_block(address, bytes, [&](std::uintptr_t block) { lost_.erase(block); });
  }

  std::set<std::uintptr_t> lost_;
};

// Never destroyed: its thread lives as long as the process.
Remade& remade_in(Engine& engine, const std::string& inject = "") {
  return *new Remade(engine, ByteReplayer::functions(), OpOrder::sequence, inject);
}

constexpr ProgramOptions kSmall{.least_words = 64, .most_words = 4096};

TEST(Remaking, RandomProgramsGiveTheBytesOfPlainOnes) {
  auto& engine = *new ScribblingEngine;
  auto& remade = remade_in(engine);
  for (std::uint64_t seed = 1; seed <= 10'000; ++seed) {
    ReplayedProgram program(remade, kSmall, seed);
    ASSERT_TRUE(program.run()) << "seed " << seed;
    ASSERT_EQ(remade.space.live_bytes(), 0u) << "seed " << seed;
    ASSERT_EQ(ByteReplayer::recipes, 0) << "seed " << seed;
    ASSERT_TRUE(engine.nothing_is_lost()) << "seed " << seed;
  }
  EXPECT_GT(remade.remaking.counters().replays, 10'000u);
  EXPECT_GT(remade.remaking.counters().discarded_bytes, 0u);
}

TEST(Remaking, WhatNeverMakesTheSameTwiceIsNotGivenUp) {
  auto& engine = *new ScribblingEngine;
  auto options = kSmall;
  options.unsteady = options.reaches = true;
  auto& remade = remade_in(engine);
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    ReplayedProgram program(remade, options, seed);
    ASSERT_TRUE(program.run()) << "seed " << seed;
    ASSERT_TRUE(engine.nothing_is_lost()) << "seed " << seed;
  }
  EXPECT_GT(remade.remaking.counters().discarded_bytes, 0u);
  const auto& [ops, refused] = remade.remaking.trials();
  std::uint64_t all_refused = 0;
  for (const auto& [name, times] : refused) all_refused += times;
  EXPECT_GT(all_refused, 0u);
  EXPECT_GT(ops, 2 * all_refused);
}

// Each in a process of its own, which tells with its status: 0 is right bytes, 1 wrong ones.
int with_fault(const std::string& inject, std::uint64_t seed,
               const ProgramOptions& options = kSmall) {
  const auto child = fork();
  if (child == 0) {
    freopen("/dev/null", "w", stderr);
    auto& engine = *new ScribblingEngine;
    auto& remade = remade_in(engine, inject);
    ReplayedProgram program(remade, options, seed);
    _exit(program.run() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class RemakingFaults : public testing::TestWithParam<const char*> {};

TEST_P(RemakingFaults, GiveRightBytesOrNone) {
  std::map<int, int> ended;
  for (std::uint64_t seed = 1; seed <= 100; ++seed)
    for (const auto* at : {"1", "2", "40"})
      ++ended[with_fault(fmt::format(fmt::runtime(GetParam()), at), seed)];
  EXPECT_EQ(ended[0] + ended[125], 300);
  const bool only_drops = !std::string_view(GetParam()).starts_with("remake");
  EXPECT_GT(ended[0], 0) << "some programs remake fewer tensors than that";
  EXPECT_EQ(ended[125] == 0, only_drops) << "a recipe that is lost in time is not missed";
}

INSTANTIATE_TEST_SUITE_P(All, RemakingFaults,
                         testing::Values("remake:{}:FLIP", "remake:{}:DROP", "remake:{}:EIO",
                                         "note:{}:DROP", "trial:{}:FLIP"));

// The first that is given up shows it, and its op is replayed no more; what came of it before that
// cannot be made again.
TEST(Remaking, WhatIsWrittenPastOpsUnsaidGivesRightBytesOrNone) {
  auto options = kSmall;
  options.unsteady = options.writes_raw = true;
  std::map<int, int> ended;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) ++ended[with_fault("", seed, options)];
  EXPECT_EQ(ended[0] + ended[125], 300);
  EXPECT_GT(ended[0], 150);
}

TEST(Remaking, FaultsAreNamedRightly) {
  EXPECT_THROW(Spoiling("remake:1:ENOSPC"), Error);
  EXPECT_THROW(Spoiling("remake:x:FLIP"), Error);
  EXPECT_FALSE(Spoiling::is_of_replays("write:3:EIO"));
}

// --- over the engine of the SSD

// Thousands in a run by hand: SENTINEL_TEST_PROGRAMS.
std::uint64_t programs() {
  const char* set = std::getenv("SENTINEL_TEST_PROGRAMS");
  return set != nullptr ? std::strtoull(set, nullptr, 10) : 40;
}

TEST(RemakingOverSsd, RandomProgramsGiveTheBytesOfPlainOnes) {
  SsdEngine* engine = nullptr;
  try {
    engine = new SsdEngine(
        {.slow_directory = "/var/tmp", .allow_memory_tier = true, .arena_bytes = 4_GiB});
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  engine->set_budget(std::max<std::uint64_t>(SsdEngine::minimum_bytes(4, 8), 48_MiB));
  auto& remade = remade_in(*engine);
  const ProgramOptions options{.ops = 10,
                               .least_words = 3_MiB / sizeof(Word),
                               .most_words = 6_MiB / sizeof(Word),
                               .touches = true};
  for (std::uint64_t seed = 1; seed <= programs(); ++seed) {
    ReplayedProgram program(remade, options, seed);
    ASSERT_TRUE(program.run()) << "seed " << seed;
    ASSERT_EQ(remade.space.live_bytes(), 0u) << "seed " << seed;
    ASSERT_EQ(ByteReplayer::recipes, 0) << "seed " << seed;
  }
  EXPECT_GT(remade.remaking.counters().replays, 0u);
}

}  // namespace
}  // namespace sentinel
