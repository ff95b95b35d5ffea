// A session whose ops run one after the other, and whose tensors have other sizes in each step.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "runtime/session.h"
#include "sentinel/adaptor.h"
#include "sentinel/error.h"
#include "unit/runtime/begin_session.h"

namespace sentinel {
namespace {

constexpr std::size_t kOps = 24, kSteps = 30, kSettled = 15;

// Of each page a word: whatever is exchanged, it is by pages or more.
void fill(std::uint64_t* tensor, std::size_t bytes, std::uint64_t value) {
  for (std::size_t i = 0; i < bytes / sizeof *tensor; i += 512) tensor[i] = value + i;
}
bool holds(const std::uint64_t* tensor, std::size_t bytes, std::uint64_t value) {
  for (std::size_t i = 0; i < bytes / sizeof *tensor; i += 512)
    if (tensor[i] != value + i) return false;
  return true;
}

class PaddedTraining {
 public:
  explicit PaddedTraining(Session& session) : session_(session) {
    for (std::size_t op = 0; op < kOps; ++op) names_.push_back("op " + std::to_string(op));
  }

  // Forward each op makes a tensor, backward it reads what it made. The sizes grow with the length
  // and its square.
  // `extra`: the name of an op in its middle, or null.
  void step(std::size_t number, std::size_t length, const char* extra = nullptr) {
    std::vector<std::uint64_t*> made(kOps);
    const auto bytes = [&](std::size_t op) {
      return op % 2 == 0 ? length * 64_KiB : length * length * 1_KiB;
    };
    for (std::size_t op = 0; op < kOps; ++op) {
      session_.op_start(names_[op].c_str(), Phase::forward, names_[op].c_str());
      session_.op_run();
      made[op] = static_cast<std::uint64_t*>(session_.allocate(bytes(op)));
      fill(made[op], bytes(op), number * kOps + op);
      session_.op_end();
    }
    if (extra != nullptr) {
      session_.op_start(extra, Phase::forward, extra);
      session_.op_run();
      session_.op_end();
    }
    for (std::size_t op = kOps; op-- > 0;) {
      session_.op_start("backward", Phase::backward, names_[op].c_str());
      if (session_.wants_tensors()) session_.op_tensor(made[op], bytes(op), SENTINEL_READ);
      session_.op_run();
      wrong_ += !holds(made[op], bytes(op), number * kOps + op);
      session_.release(made[op]);
      session_.op_end();
    }
    session_.step_end();
  }

  std::size_t wrong() const { return wrong_; }

 private:
  Session& session_;
  std::vector<std::string> names_;
  std::size_t wrong_ = 0;
};

class SessionOfManySizes : public testing::Test {
 protected:
  void SetUp() override {
    SessionOptions options = options_from_environment();
    options.mode = Mode::run;
    options.summary = summary_;
    options.machine = "a100-g10";
    options.counting.source = "ops";
    options.quiet = true;
    options.tiers.arena_bytes = 16_GiB;
    options.fast.bytes = 64_MiB;
    try {
      session_ = &test::begin_session(std::move(options), OpOrder::sequence);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    training_.emplace(*session_);
  }
  // What is true of each such training.
  nlohmann::json finish(std::size_t steps) {
    session_->finish("the test ended");
    EXPECT_EQ(training_->wrong(), 0u);
    auto written = nlohmann::json::parse(std::ifstream(summary_));
    std::filesystem::remove(summary_);
    EXPECT_LE(written["peak_fast_bytes"], written["fast_limit_bytes"]);
    EXPECT_EQ(written["steps"].size(), steps);
    return written;
  }
  std::size_t any_length() { return 48 + chance_() % 48; }

  Session* session_ = nullptr;  // never destroyed: a session lives as long as its process
  std::optional<PaddedTraining> training_;
  std::mt19937_64 chance_{1};

 private:
  const std::filesystem::path summary_ =
      std::filesystem::path(testing::TempDir()) / ("sizes-" + std::to_string(getpid()) + ".json");
};

// The length's largest value comes after the profiling step.
TEST_F(SessionOfManySizes, OnePlanServesThemAll) {
  constexpr std::size_t kLargest = kSettled - 3;
  for (std::size_t step = 0; step < kSteps; ++step)
    training_->step(step, step == kLargest ? 96 : any_length());
  const auto written = finish(kSteps);
  EXPECT_EQ(written["plans"], 1) << "a step of other sizes is no other kind";
  const auto faults = [&](std::size_t first, std::size_t last) {
    double sum = 0;
    for (std::size_t i = first; i < last; ++i)
      sum += written["steps"][i]["demand_faults"].get<double>();
    return sum / static_cast<double>(last - first);
  };
  EXPECT_GT(faults(1, 3), 10) << "by demand";
  EXPECT_LT(faults(kSettled, kSteps), faults(1, 3) / 4);
  EXPECT_LT(faults(kLargest, kLargest + 1), faults(1, 3) / 2) << "too large keeps its role";
}

// A family is known by its ops alone: no two of its steps are of the same sizes.
TEST_F(SessionOfManySizes, ANewFamilyIsPlannedOnceTwoOfItsStepsWereSeen) {
  for (std::size_t step = 0; step < kSteps; ++step)
    training_->step(step, 60 + step, step == 12 || step == 15 ? "extra" : nullptr);
  EXPECT_EQ(finish(kSteps)["plans"], 2);
}

TEST_F(SessionOfManySizes, AFamilyThatWasSeenOnceGetsNoPlan) {
  for (std::size_t step = 0; step < kSteps; ++step)
    training_->step(step, 60 + step, step == 12 ? "extra" : step == 15 ? "other" : nullptr);
  EXPECT_EQ(finish(kSteps)["plans"], 1);
}

}  // namespace
}  // namespace sentinel
