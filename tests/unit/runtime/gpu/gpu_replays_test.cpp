// A session on a GPU whose plan discards tensors and has the adaptor make them again. Kernels run
// late, on the stream that their op has named; what one uses that is not there is complained about.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "base/units.h"
#include "engine/gpu/managed_driver.h"
#include "plan/check/plan_file.h"
#include "runtime/session.h"
#include "sentinel/adaptor.h"
#include "unit/engine/gpu/fake_gpu.h"
#include "unit/engine/gpu/second_thread.h"
#include "unit/runtime/begin_session.h"
#include "unit/runtime/replayed_plan.h"

namespace sentinel {
namespace {

using rig::SecondThread;
using test::apart;
using test::replayed_plan;
using Word = std::uint64_t;

constexpr std::size_t kOps = 24, kSteps = 12;
constexpr std::uint64_t kBudget = 80_MiB;
constexpr std::size_t kBytes = 6_MiB, kWords = kBytes / sizeof(Word);
constexpr std::size_t kEach = 512;  // words: one of each page is computed with

// Of the process's one session, never destroyed.
Session* session = nullptr;
gpu::FakeGpu* device = nullptr;
gpu::Stream stream = nullptr, other = nullptr;
thread_local gpu::Stream here = nullptr;  // on which the thread launches

void compute_on(gpu::Stream on) {
  here = on;
  session->compute_on(on);
}

Word mixed(Word word, Word with) {
  word = (word ^ with) * 0x9e3779b97f4a7c15ull;
  return word ^ word >> 31;
}

std::pair<std::uintptr_t, std::uint64_t> place(const Word* words) {
  return {reinterpret_cast<std::uintptr_t>(words), kBytes};
}

// Each op hashes the words of two tensors.
struct Hashing {
  Word seed = 0;
  std::uint64_t a = 0, b = 0, made = 0;
  const Word *at_a = nullptr, *at_b = nullptr;

  void launch(const Word* a, const Word* b, Word* out, gpu::Stream on) const {
    device->launch(on, {place(a), place(b), place(out)}, [seed = seed, a, b, out] {
      for (std::size_t i = 0; i < kWords; i += kEach) {
        out[i] = mixed(a[i] + seed, b[i]);
        std::fill_n(out + i + 1, kEach - 1, out[i]);  // whatever lay there
      }
    });
  }
};

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
    if (out == nullptr) return -ENOMEM;
    session->replays().remaking().soil(out, kBytes);
    op.launch(find(op.a, op.at_a), find(op.b, op.at_b), out, here);
    made.push_back({op.made, out});
  }
  for (const auto& [number, words] : made) give(context, number, words, kBytes);
  for (const auto& [number, words] : made) session->release(words);
  return 0;
}
void drop(void* recipe) { delete static_cast<Hashing*>(recipe); }
bool is_able = true;
int able() { return is_able ? 1 : 0; }
void launches() { session->compute_on(here); }
constexpr sentinel_replayer kReplayer{
    .replay = replay, .drop = drop, .able = able, .launches = launches};

class LateTraining {
 public:
  LateTraining() {
    for (std::size_t op = 0; op < kOps; ++op) names_.push_back(fmt::format("op {}", op));
    compute_on(stream);
    input_ = static_cast<Word*>(session->allocate(kBytes));
    device->launch(stream, {place(input_)}, [input = input_] {
      for (std::size_t i = 0; i < kWords; ++i) input[i] = mixed(i, 1);
    });
  }

  // Forward each op makes a tensor of the one before and the input; backward each is read again,
  // the last one first, and the result changes the input.
  void step(bool two_threads, bool two_streams) {
    std::vector<Word*> made;
    for (std::size_t op = 0; op < kOps; ++op)
      made.push_back(run(op, op == 0 ? input_ : made[op - 1], input_, Phase::forward, stream));
    const auto on = two_streams ? other : stream;
    if (two_streams) order(on, stream);
    const auto backward = [&] {
      Word* gradient = made.back();
      for (std::size_t op = kOps; op-- > 0;) {
        auto* next = run(kOps - 1 - op, gradient, made[op], Phase::backward, on);
        session->release(gradient);
        gradient = next;
        if (op != kOps - 1) session->release(made[op]);
      }
      session->op_start("update", Phase::optimizer, nullptr);
      compute_on(on);
      session->op_tensor(gradient, kBytes, SENTINEL_READ);
      session->op_tensor(input_, kBytes, SENTINEL_READ | SENTINEL_WRITE);
      session->op_run();
      device->launch(on, {place(gradient), place(input_)}, [gradient, input = input_] {
        for (std::size_t i = 0; i < kWords; i += kEach) input[i] = mixed(input[i], gradient[i]);
      });
      session->op_end();
      session->release(gradient);
    };
    if (two_threads && second_ == nullptr) second_ = std::make_unique<SecondThread>();
    two_threads ? second_->run(backward) : backward();
    if (two_streams) order(stream, on);
    compute_on(stream);
    session->step_end();
  }

  Word result() {
    Word all = 0;
    session->op_start("sum", Phase::forward, nullptr);
    compute_on(stream);
    session->op_tensor(input_, kBytes, SENTINEL_READ);
    session->op_run();
    device->launch(stream, {place(input_)}, [&all, input = input_] {
      for (std::size_t i = 0; i < kWords; i += kEach) all = mixed(all, input[i]);
    });
    device->finish();
    session->op_end();
    return all;
  }

 private:
  // As a program that uses two streams does.
  static void order(gpu::Stream later, gpu::Stream earlier) {
    const auto event = device->make_event();
    device->record(event, earlier);
    device->wait(later, event);
  }

  Word* run(std::size_t op, const Word* a, const Word* b, Phase phase, gpu::Stream on) {
    Hashing hashing{.seed = op + (phase == Phase::backward ? 100 : 0), .at_a = a, .at_b = b};
    compute_on(on);
    session->op_start(phase == Phase::forward ? names_[op].c_str() : "backward", phase,
                      names_[op].c_str());
    for (const auto* each : {a, b}) session->op_tensor(each, kBytes, SENTINEL_READ);
    const bool wanted = session->replays().wants_recipe();
    session->op_run();
    auto* out = static_cast<Word*>(session->allocate(kBytes));
    hashing.launch(a, b, out, on);
    if (wanted) {
      hashing.a = session->replays().number(a), hashing.b = session->replays().number(b);
      hashing.made = session->replays().number(out);
      const std::uint64_t read[] = {hashing.a, hashing.b}, written[] = {hashing.made};
      session->replays().recipe(new Hashing(hashing), read, written);
    }
    session->op_tensor(out, kBytes, SENTINEL_WRITE);
    session->op_end();
    return out;
  }

  std::vector<std::string> names_;
  Word* input_ = nullptr;
  std::unique_ptr<SecondThread> second_;
};

struct Way {
  bool managed = false, two_threads = false, two_streams = false;
};

SessionOptions on_device(Mode mode, const Way& way, unsigned seed) {
  device = new gpu::FakeGpu(seed, 400, 2_MiB);
  std::shared_ptr<gpu::Driver> driver(device);
  if (way.managed) {
    driver.reset();
    device = new gpu::FakeGpu(seed, 400, 2_MiB);
    driver = gpu::make_managed_driver(std::unique_ptr<gpu::Driver>(device));
  }
  stream = device->make_stream();
  device->make_stream();  // its number is that of a thread's default stream
  other = device->make_stream();
  SessionOptions options = options_from_environment();
  options.mode = mode;
  options.machine = "a100-g10";
  options.counting.source = "ops";
  options.quiet = true;
  options.tiers.arena_bytes = 4_GiB;
  options.gpu.device = 0;
  options.gpu.memory = way.managed ? "managed" : "pools";
  options.gpu.driver = driver;
  return options;
}

class GpuReplays : public testing::TestWithParam<std::tuple<Way, unsigned>> {
 protected:
  std::filesystem::path file(const char* name) {
    return std::filesystem::path(testing::TempDir()) /
           fmt::format("gpu-replays-{}-{}", getpid(), name);
  }
  void TearDown() override {
    for (const auto& each : {profile_, plan_, summary_, result_}) std::filesystem::remove(each);
  }

  static Word train(const Way& way) {
    LateTraining training;
    for (std::size_t step = 0; step < kSteps; ++step)
      training.step(way.two_threads, way.two_streams);
    const auto result = training.result();
    session->finish("the test ended");
    device->finish();
    for (const auto& complaint : device->complaints())
      std::fprintf(stderr, "complaint: %s\n", complaint.c_str());
    return device->complaints().empty() ? result : 0;
  }
  // Without any limit. Answers its result, and leaves a profile and a plan with replays.
  void record(const Way& way) {
    ASSERT_EQ(apart([&] {
                auto options = on_device(Mode::record, way, 1);
                options.output = profile_;
                session = &test::begin_session(std::move(options), OpOrder::any);
                std::ofstream(result_) << train(way);
                return 0;
              }),
              0);
    const auto plan = replayed_plan(profile_, kBudget);
    ASSERT_EQ(plan::verify(plan, read_any(profile_)), std::vector<std::string>{});
    ASSERT_GT(plan.recomputations.size(), 3u);
    plan::write_plan(plan_, plan);
  }
  int run_plan(const Way& way, unsigned seed, const std::string& inject = "") {
    return apart([&] {
      auto options = on_device(Mode::run, way, seed);
      options.plan = plan_;
      options.fast.bytes = kBudget;
      options.summary = summary_;
      options.moves.inject = inject;
      options.moves.recompute = true;
      session = &test::begin_session(std::move(options), OpOrder::any, &kReplayer);
      const auto result = train(way);
      Word expected = 0;
      std::ifstream(result_) >> expected;
      return result == expected && result != 0 ? 0 : 1;
    });
  }

  std::filesystem::path profile_ = file("profile.sentinel"), plan_ = file("plan.json"),
                        summary_ = file("summary.json"), result_ = file("result");
};

TEST_P(GpuReplays, GiveTheSameBytes) {
  const auto& [way, seed] = GetParam();
  ASSERT_NO_FATAL_FAILURE(record(way));
  ASSERT_EQ(run_plan(way, seed), 0);
  const auto written = nlohmann::json::parse(std::ifstream(summary_));
  const auto& last = written["steps"].back();
  EXPECT_EQ(last["phase"], "steady");
  EXPECT_LE(written["peak_fast_bytes"], written["fast_limit_bytes"]);
  EXPECT_FALSE(written.contains("no_replays"));
  if (way.two_streams) {  // everything is moved
    EXPECT_EQ(last.value("replays", 0), 0);
    return;
  }
  EXPECT_GT(last.value("replays", 0), 0);
  EXPECT_GT(last.value("discarded_bytes", 0), 0);
  EXPECT_GT(last.value("replayed_bytes", 0), 0);
}
INSTANTIATE_TEST_SUITE_P(
    All, GpuReplays,
    testing::Combine(testing::Values(Way{}, Way{.managed = true}, Way{.two_threads = true},
                                     Way{.two_streams = true},
                                     Way{.two_threads = true, .two_streams = true}),
                     testing::Range(1u, 4u)));

class OneGpuReplay : public GpuReplays {};
INSTANTIATE_TEST_SUITE_P(All, OneGpuReplay,
                         testing::Combine(testing::Values(Way{}), testing::Values(1u)));

TEST_P(OneGpuReplay, AFaultStopsTheTrainingOrChangesNothing) {
  ASSERT_NO_FATAL_FAILURE(record({}));
  EXPECT_EQ(run_plan({}, 1, "remake:2:FLIP"), 125);
  EXPECT_EQ(run_plan({}, 1, "remake:2:DROP"), 125);
  EXPECT_EQ(run_plan({}, 1, "note:2:DROP"), 0);
}

TEST_P(OneGpuReplay, IsRefusedWhereTheAdaptorIsNotAble) {
  ASSERT_NO_FATAL_FAILURE(record({}));
  is_able = false;
  EXPECT_EQ(run_plan({}, 1), 77);
  EXPECT_EQ(apart([&] {
              auto options = on_device(Mode::run, {}, 1);
              options.fast.bytes = kBudget;
              options.summary = summary_;
              session = &test::begin_session(std::move(options), OpOrder::any, &kReplayer);
              train({});
              return 0;
            }),
            0);
  is_able = true;
  const auto written = nlohmann::json::parse(std::ifstream(summary_));
  EXPECT_THAT(written.value("no_replays", ""), testing::HasSubstr("deterministic"));
}

}  // namespace
}  // namespace sentinel
