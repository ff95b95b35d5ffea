// A session on the processor: ops that run at the same time, in an order of each step's own; and
// ops that nobody wants to know of.
#include "runtime/session.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "sentinel/adaptor.h"
#include "sentinel/error.h"
#include "trace/store.h"
#include "unit/capture/fake_rwp.h"
#include "unit/runtime/begin_session.h"

namespace sentinel {
namespace {

constexpr std::size_t kOps = 24, kThreads = 4, kSteps = 10;
constexpr std::size_t kWords = (4u << 20) / sizeof(std::uint64_t);  // of a tensor

// Of each page a word: whatever is exchanged, it is by pages or more.
void fill(std::uint64_t* tensor, std::uint64_t value) {
  for (std::size_t i = 0; i < kWords; i += 512) tensor[i] = value + i;
}
bool holds(const std::uint64_t* tensor, std::uint64_t value) {
  for (std::size_t i = 0; i < kWords; i += 512)
    if (tensor[i] != value + i) return false;
  return true;
}

std::string name_of(std::size_t op) { return "op " + std::to_string(op); }

class Training {
 public:
  explicit Training(Session& session) : session_(session) {
    for (std::size_t op = 0; op < kOps; ++op) {
      names_.push_back(name_of(op));
      weights_.push_back(allocate());
      fill(weights_.back(), op);
    }
  }

  // Each op reads its weights, makes a tensor that lives until the step's end, and updates the
  // weights. `threads` run them in a random order.
  void step(std::size_t number) {
    std::vector<std::size_t> order(kOps);
    for (std::size_t i = 0; i < kOps; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937_64(number));
    std::vector<std::uint64_t*> made(kOps);
    std::atomic<std::size_t> next = 0;
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t)
      threads.emplace_back([&] {
        for (std::size_t at = next++; at < kOps; at = next++)
          made[order[at]] = run(order[at], number);
      });
    for (auto& thread : threads) thread.join();
    for (std::size_t op = 0; op < kOps; ++op) {
      wrong_ += !holds(made[op], number * kOps + op);
      session_.release(made[op]);
    }
    session_.step_end();
  }

  std::size_t wrong() const { return wrong_; }

 private:
  std::uint64_t* allocate() {
    return static_cast<std::uint64_t*>(session_.allocate(kWords * sizeof(std::uint64_t)));
  }

  std::uint64_t* run(std::size_t op, std::size_t step) {
    session_.op_start(names_[op].c_str(), Phase::forward,
                      op % 6 == 0 ? names_[op].c_str() : nullptr);
    if (session_.wants_tensors())
      session_.op_tensor(weights_[op], kWords * sizeof(std::uint64_t),
                         SENTINEL_READ | SENTINEL_WRITE);
    session_.op_run();
    wrong_ += !holds(weights_[op], step * kOps + op);
    auto* made = allocate();
    fill(made, step * kOps + op);
    fill(weights_[op], (step + 1) * kOps + op);
    session_.op_end();
    return made;
  }

  Session& session_;
  std::vector<std::string> names_;
  std::vector<std::uint64_t*> weights_;
  std::atomic<std::size_t> wrong_ = 0;
};

SessionOptions quiet_run() {
  SessionOptions options = options_from_environment();
  options.mode = Mode::run;
  options.machine = "a100-g10";
  options.counting.source = "ops";
  options.quiet = true;
  options.tiers.arena_bytes = 16_GiB;
  return options;
}

TEST(SessionInAnyOrder, WhatThreadsWriteIsWhatTheyFind) {
  const auto summary =
      std::filesystem::path(testing::TempDir()) / ("session-" + std::to_string(getpid()) + ".json");
  SessionOptions options = quiet_run();
  options.summary = summary;
  options.fast.percent = 40;
  Session* session = nullptr;  // never destroyed: a session lives as long as its process
  try {
    session = &test::begin_session(std::move(options), OpOrder::any);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  Training training(*session);
  for (std::size_t step = 0; step < kSteps; ++step) training.step(step);
  session->finish("the test ended");
  EXPECT_EQ(training.wrong(), 0u);

  const auto written = nlohmann::json::parse(std::ifstream(summary));
  std::filesystem::remove(summary);
  EXPECT_LE(written["peak_fast_bytes"], written["fast_limit_bytes"]);
  const auto& last = written["steps"].back();
  EXPECT_EQ(last["phase"], "steady");
  EXPECT_GT(last["promoted_bytes"], 0);
  EXPECT_GT(last["demoted_bytes"], 0);
  EXPECT_EQ(written["plans"], 1) << "the order is no kind of step";
}

// --- where tensors lie while a step is counted

// The file of shared memory in which a step is counted by userfaultfd.
bool maps_memory_file() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("/memfd:sentinel (deleted)") != line.npos) return true;
  return false;
}

struct CountedRun {
  std::string source;  // of the profile's counts
  std::uint64_t openings = 0;
  std::size_t wrong = 0;
  bool shared_at_first = false, shared_later = false, shared_in_the_end = false;
};

// Throws Error where it is refused.
CountedRun counted_run(const std::string& source) {
  const auto path = std::filesystem::path(testing::TempDir()) /
                    ("counted-" + std::to_string(getpid()) + ".sentinel");
  SessionOptions options = quiet_run();
  options.output = path;
  options.fast.percent = 40;
  options.counting.source = source;
  auto* session = &test::begin_session(std::move(options), OpOrder::any);
  CountedRun run;
  run.shared_at_first = maps_memory_file();
  Training training(*session);
  for (std::size_t step = 0; step < kSteps; ++step) {
    training.step(step);
    run.shared_later |= maps_memory_file();
  }
  run.shared_in_the_end = maps_memory_file();
  session->finish("the test ended");
  run.wrong = training.wrong();
  const Profile profile = read_profile(path);
  run.source = profile.meta.source;
  for (const auto& access : profile.accesses) run.openings += access.reads + access.writes;
  std::filesystem::remove(path);
  return run;
}

class SessionCounted : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = FakeRwp::absent(); !why.empty()) GTEST_SKIP() << why;
  }
  static constexpr std::uint64_t kPages = kOps * (kWords / 512);  // of the weights
};

TEST_F(SessionCounted, ByUserfaultfdMemoryIsSharedUntilTheProfileIsThere) {
  const auto run = counted_run("userfaultfd");
  EXPECT_EQ(run.source, "userfaultfd");
  EXPECT_EQ(run.wrong, 0u);
  EXPECT_GE(run.openings, kPages);
  EXPECT_TRUE(run.shared_at_first);
  EXPECT_TRUE(run.shared_later);
  EXPECT_FALSE(run.shared_in_the_end);
}

// By name, and as the first that is there: memory is never shared, so there is no way back.
TEST_F(SessionCounted, ByReadWriteProtectionTheSwitchFallsAway) {
  auto* fake = new FakeRwp;  // for as long as the sessions
  const OtherUffdCalls others(*fake);
  for (const char* source : {"rwp", "auto"}) {
    const auto run = counted_run(source);
    EXPECT_EQ(run.source, "rwp") << source;
    EXPECT_EQ(run.wrong, 0u) << source;
    EXPECT_GE(run.openings, kPages) << source;
    EXPECT_FALSE(run.shared_at_first) << source;
    EXPECT_FALSE(run.shared_later) << source;
  }
}

TEST_F(SessionCounted, WhereTheKernelLacksItUserfaultfdCounts) {
  auto* without = new FakeRwp(false);
  const OtherUffdCalls others(*without);
  EXPECT_EQ(counted_run("auto").source, "userfaultfd");
  try {
    counted_run("rwp");
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("UFFD_FEATURE_RWP"), std::string::npos);
  }
}

// --- ops that need not be told

class SessionAtRest : public testing::Test {
 protected:
  void begin(SessionOptions options) {
    try {
      session_ = &test::begin_session(std::move(options), OpOrder::sequence);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    weights_ = made();
    fill(weights_, 0);
  }

  // Its ops make a tensor each, and update the weights.
  void step() {
    std::vector<std::uint64_t*> all;
    for (std::size_t op = 0; op < kOps; ++op) {
      session_->op_start("op", Phase::forward, nullptr);
      if (session_->wants_tensors())
        session_->op_tensor(weights_, kBytes, SENTINEL_READ | SENTINEL_WRITE);
      session_->op_run();
      EXPECT_TRUE(holds(weights_, updates_));
      fill(all.emplace_back(made()), op);
      fill(weights_, ++updates_);
      session_->op_end();
    }
    for (std::size_t op = 0; op < kOps; ++op) {
      EXPECT_TRUE(holds(all[op], op));
      session_->release(all[op]);
    }
    session_->step_end();
  }

  // Until ops are told no more; false: they still are.
  bool rests_within(int steps) {
    while (steps-- > 0 && session_->wants_ops()) step();
    return !session_->wants_ops();
  }

  std::uint64_t* made() { return static_cast<std::uint64_t*>(session_->allocate(kBytes)); }

  static constexpr std::size_t kBytes = kWords * sizeof(std::uint64_t);
  Session* session_ = nullptr;  // never destroyed: a session lives as long as its process
  std::uint64_t* weights_ = nullptr;
  std::uint64_t updates_ = 0;
};

TEST_F(SessionAtRest, NobodyIsToldWhereNothingCanLeave) {
  begin(quiet_run());
  ASSERT_TRUE(rests_within(8));
  EXPECT_FALSE(session_->wants_tensors());
  for (int i = 0; i < 3; ++i) step();
  EXPECT_FALSE(session_->wants_ops());
}

TEST_F(SessionAtRest, AProfileThatTheProgramBeginsIsTold) {
  begin(quiet_run());
  ASSERT_TRUE(rests_within(8));
  ASSERT_EQ(session_->start_profile(), 0);
  EXPECT_TRUE(session_->wants_ops());
  step();
  ASSERT_EQ(session_->end_profile(), 0);
  EXPECT_TRUE(rests_within(4));
}

TEST_F(SessionAtRest, OpsAreToldAgainBeforeMemoryGetsShort) {
  auto options = quiet_run();
  options.fast.bytes = 256_MiB;  // a step has 24 tensors of 4 MiB, and the weights
  begin(std::move(options));
  ASSERT_TRUE(rests_within(8));
  std::vector<std::uint64_t*> kept;
  for (; !session_->wants_ops() && kept.size() < 64; fill(kept.back(), kept.size()))
    kept.push_back(made());
  EXPECT_GE(kept.size() + 1, 7 * 256 / 8 / 4);
  EXPECT_LT(kept.size() + 1, 256 / 4);
  for (int i = 0; i < 3; ++i) step();
  EXPECT_TRUE(session_->wants_ops());
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(holds(kept[i], i + 1));
}

TEST_F(SessionAtRest, StepsThatMoveAreTold) {
  auto options = quiet_run();
  options.fast.percent = 50;
  begin(std::move(options));
  EXPECT_FALSE(rests_within(8));
}

}  // namespace
}  // namespace sentinel
