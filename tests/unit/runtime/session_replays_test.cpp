// A session whose plan discards tensors and has the adaptor make them again, over the seam's calls.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "plan/check/plan_file.h"
#include "plan/check/verify.h"
#include "runtime/session.h"
#include "sentinel/adaptor.h"
#include "sentinel/error.h"
#include "trace/read_any.h"
#include "unit/runtime/begin_session.h"
#include "unit/runtime/replayed_plan.h"

namespace sentinel {
namespace {

using test::apart;
using test::replayed_plan;
using Word = std::uint64_t;

constexpr std::size_t kOps = 24, kSteps = 12;
constexpr std::uint64_t kBudget = 80_MiB;
constexpr std::size_t kBytes = 6_MiB, kWords = kBytes / sizeof(Word);

Word mixed(Word word, Word with) {
  word = (word ^ with) * 0x9e3779b97f4a7c15ull;
  return word ^ word >> 31;
}

// Each op hashes the words of two tensors.
struct Hashing {
  Word seed = 0;
  std::uint64_t a = 0, b = 0, made = 0;
  const Word *at_a = nullptr, *at_b = nullptr;

  void compute(const Word* a, const Word* b, Word* out) const {
    for (std::size_t i = 0; i < kWords; ++i) out[i] = mixed(a[i] + seed, b[i]);
  }
};

Session* session = nullptr;  // never destroyed: a session lives as long as its process

// Its scratch memory is the session's, as a framework's is.
int replay(void* const* recipes, std::size_t count, sentinel_give give, void* context) {
  std::vector<std::pair<std::uint64_t, Word*>> made;
  for (std::size_t r = 0; r < count; ++r) {
    const auto& op = *static_cast<const Hashing*>(recipes[r]);
    const auto find = [&](std::uint64_t number, const Word* address) -> const Word* {
      for (const auto& [each, words] : made)
        if (each == number) return words;
      return address;
    };
    auto* out = static_cast<Word*>(session->allocate(kBytes));
    op.compute(find(op.a, op.at_a), find(op.b, op.at_b), out);
    made.push_back({op.made, out});
  }
  for (const auto& [number, words] : made) give(context, number, words, kBytes);
  for (const auto& [number, words] : made) session->release(words);
  return 0;
}
void drop(void* recipe) { delete static_cast<Hashing*>(recipe); }
constexpr sentinel_replayer kReplayer{.replay = replay, .drop = drop};

class HashedTraining {
 public:
  HashedTraining() {
    for (std::size_t op = 0; op < kOps; ++op) names_.push_back(fmt::format("op {}", op));
    input_ = static_cast<Word*>(session->allocate(kBytes));
    for (std::size_t i = 0; i < kWords; ++i) input_[i] = mixed(i, 1);
  }

  // Forward each op makes a tensor of the one before and the input; backward each is read again,
  // the last one first, and the result changes the input.
  void step(bool touches) {
    std::vector<Word*> made;
    for (std::size_t op = 0; op < kOps; ++op)
      made.push_back(run(op, op == 0 ? input_ : made[op - 1], input_, Phase::forward));
    if (touches) {  // as a hook that copies an activation, which no op names
      std::thread([&] { result_ = mixed(result_, made[kOps / 2][kWords / 2]); }).join();
    }
    Word* gradient = made.back();
    for (std::size_t op = kOps; op-- > 0;) {
      auto* next = run(kOps - 1 - op, gradient, made[op], Phase::backward);
      session->release(gradient);
      gradient = next;
      if (op != kOps - 1) session->release(made[op]);
    }
    session->op_start("update", Phase::optimizer, nullptr);
    if (session->wants_tensors()) {
      session->op_tensor(gradient, kBytes, SENTINEL_READ);
      session->op_tensor(input_, kBytes, SENTINEL_READ | SENTINEL_WRITE);
    }
    session->op_run();
    for (std::size_t i = 0; i < kWords; ++i) input_[i] = mixed(input_[i], gradient[i]);
    session->op_end();
    session->release(gradient);
    session->step_end();
  }

  Word result() const {
    Word all = result_;
    for (std::size_t i = 0; i < kWords; ++i) all = mixed(all, input_[i]);
    return all;
  }

 private:
  Word* run(std::size_t op, const Word* a, const Word* b, Phase phase) {
    Hashing hashing{.seed = op + (phase == Phase::backward ? 100 : 0), .at_a = a, .at_b = b};
    session->op_start(phase == Phase::forward ? names_[op].c_str() : "backward", phase,
                      names_[op].c_str());
    if (session->wants_tensors())
      for (const auto* each : {a, b}) session->op_tensor(each, kBytes, SENTINEL_READ);
    const bool wanted = session->replays().wants_recipe();
    session->op_run();
    auto* out = static_cast<Word*>(session->allocate(kBytes));
    hashing.compute(a, b, out);
    if (session->wants_tensors()) session->op_tensor(out, kBytes, SENTINEL_WRITE);
    if (wanted) {
      hashing.a = session->replays().number(a), hashing.b = session->replays().number(b);
      hashing.made = session->replays().number(out);
      const std::uint64_t read[] = {hashing.a, hashing.b}, written[] = {hashing.made};
      session->replays().recipe(new Hashing(hashing), read, written);
    }
    session->op_end();
    return out;
  }

  std::vector<std::string> names_;
  Word* input_ = nullptr;
  Word result_ = 0;
};

SessionOptions quiet(Mode mode) {
  SessionOptions options = options_from_environment();
  options.mode = mode;
  options.machine = "a100-g10";
  options.counting.source = "ops";
  options.quiet = true;
  options.tiers.arena_bytes = 16_GiB;
  return options;
}

class SessionReplays : public testing::Test {
 protected:
  std::filesystem::path file(const char* name) {
    return std::filesystem::path(testing::TempDir()) / fmt::format("replays-{}-{}", getpid(), name);
  }
  void TearDown() override {
    for (const auto& each : {profile_, plan_, summary_, result_}) std::filesystem::remove(each);
  }

  static Word train(bool touches) {
    HashedTraining training;
    for (std::size_t step = 0; step < kSteps; ++step) training.step(touches);
    const auto result = training.result();
    session->finish("the test ended");
    return result;
  }

  // Without any limit. Answers its result, and leaves a profile.
  bool record(bool touches) {
    const int status = apart([&] {
      auto options = quiet(Mode::record);
      options.output = profile_;
      session = &test::begin_session(std::move(options), OpOrder::sequence);
      std::ofstream(result_) << train(touches);
      return 0;
    });
    return status == 0 && std::filesystem::exists(profile_);
  }
  int run_plan(bool touches, const std::string& inject = "") {
    return apart([&] {
      auto options = quiet(Mode::run);
      options.plan = plan_;
      options.fast.bytes = kBudget;
      options.summary = summary_;
      options.moves.inject = inject;
      options.moves.recompute = true;
      session = &test::begin_session(std::move(options), OpOrder::sequence, &kReplayer);
      const auto result = train(touches);
      Word expected = 0;
      std::ifstream(result_) >> expected;
      return result == expected ? 0 : 1;
    });
  }

  void make_plan() {
    const auto plan = replayed_plan(profile_, kBudget);
    ASSERT_EQ(plan::verify(plan, read_any(profile_)), std::vector<std::string>{});
    ASSERT_GT(plan.recomputations.size(), 3u);
    plan::write_plan(plan_, plan);
  }

  // Each is named, was run, and costs what its ops do.
  void expect_rows(const nlohmann::json& rows) {
    const auto plan = plan::read_plan(plan_);
    const auto profile = read_any(profile_);
    std::size_t replays = 0;
    ASSERT_GT(rows.size(), 3u);
    for (const auto& row : rows) {
      ASSERT_EQ(row["tensors"].size(), 1u) << "make_plan() has one before an op";
      const auto& tensor = row["tensors"][0];
      const auto id = tensor["tensor"].get<std::size_t>();
      EXPECT_EQ(tensor["name"], profile.tensors[id].name);
      EXPECT_EQ(tensor["bytes"], profile.tensors[id].bytes);
      EXPECT_EQ(tensor["maker"], row["replays"].back());
      double ms = 0;
      for (const auto& replay : row["replays"]) {
        const auto& op = profile.ops[replay["op"].get<std::size_t>()];
        EXPECT_EQ(replay["name"], op.name);
        ms += op.us / 1e3;
        ++replays;
      }
      EXPECT_GE(row["replay_ms"].get<double>(), ms * (1 - 1e-9));
      EXPECT_GT(row["move_ms"].get<double>(), 0);
      if (row["steps"] != 0) {
        EXPECT_GT(row["measured_ms"].get<double>(), 0);
      }
    }
    EXPECT_EQ(replays, plan.recomputations.size());
    EXPECT_TRUE(std::ranges::any_of(rows, [](const auto& row) { return row["steps"] != 0; }));
  }

  std::filesystem::path profile_ = file("profile.sentinel"), plan_ = file("plan.json"),
                        summary_ = file("summary.json"), result_ = file("result");
};

TEST_F(SessionReplays, APlansReplaysGiveTheSameBytes) {
  for (const bool touches : {false, true}) {
    if (!record(touches)) GTEST_SKIP() << "no session can be had here";
    ASSERT_NO_FATAL_FAILURE(make_plan());
    ASSERT_EQ(run_plan(touches), 0);
    const auto written = nlohmann::json::parse(std::ifstream(summary_));
    const auto& last = written["steps"].back();
    EXPECT_EQ(last["phase"], "steady");
    EXPECT_GT(last.value("replays", 0), 0);
    EXPECT_GT(last.value("discarded_bytes", 0), 0);
    EXPECT_GT(last.value("replayed_bytes", 0), 0);
    EXPECT_LE(written["peak_fast_bytes"], written["fast_limit_bytes"]);
    EXPECT_FALSE(written.contains("no_replays"));
    expect_rows(written["made_again"]);
  }
}

TEST_F(SessionReplays, AFaultStopsTheTrainingOrChangesNothing) {
  if (!record(true)) GTEST_SKIP() << "no session can be had here";
  ASSERT_NO_FATAL_FAILURE(make_plan());
  EXPECT_EQ(run_plan(true, "remake:2:FLIP"), 125);
  EXPECT_EQ(run_plan(true, "remake:2:DROP"), 125);
  EXPECT_EQ(run_plan(true, "remake:2:EIO"), 125);
  EXPECT_EQ(run_plan(true, "note:2:DROP"), 0);
}

TEST_F(SessionReplays, APlanThatReplaysIsRefusedWhereNobodyCanOrMay) {
  if (!record(false)) GTEST_SKIP() << "no session can be had here";
  ASSERT_NO_FATAL_FAILURE(make_plan());
  for (const bool can : {false, true}) {
    auto options = quiet(Mode::run);
    options.plan = plan_;
    options.moves.recompute = !can;
    EXPECT_EQ(apart([&] {
                session = &test::begin_session(std::move(options), OpOrder::sequence,
                                               can ? &kReplayer : nullptr);
                return 0;
              }),
              77);
  }
}

TEST_F(SessionReplays, ASummaryWithoutReplaysSaysWhy) {
  const auto reason = [&](bool recompute, const sentinel_replayer* replayer) {
    EXPECT_EQ(apart([&] {
                auto options = quiet(Mode::run);
                options.fast.bytes = kBudget;
                options.summary = summary_;
                options.moves.recompute = recompute;
                session = &test::begin_session(std::move(options), OpOrder::sequence, replayer);
                train(false);
                return 0;
              }),
              0);
    const auto written = nlohmann::json::parse(std::ifstream(summary_));
    EXPECT_FALSE(written.contains("made_again"));
    return written.value("no_replays", "");
  };
  if (!record(false)) GTEST_SKIP() << "no session can be had here";
  EXPECT_EQ(reason(false, &kReplayer), "recomputation is off");
  EXPECT_EQ(reason(true, nullptr), "this framework's adaptor cannot run an op again");
  EXPECT_EQ(reason(true, &kReplayer), "policy sentinel has planned none");
}

}  // namespace
}  // namespace sentinel
