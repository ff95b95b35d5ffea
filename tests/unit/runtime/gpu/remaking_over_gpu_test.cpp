// Random programs over the engine of a GPU, whose kernels run late: what is given up is made again
// by kernels in the stream's order, and the bytes are those of plain memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <map>

#include "base/units.h"
#include "engine/gpu/gpu_engine.h"
#include "engine/gpu/managed_driver.h"
#include "unit/engine/gpu/fake_gpu.h"
#include "unit/runtime/replayed_program.h"

namespace sentinel {
namespace {

using test::ByteOp;
using test::ByteReplayer;
using test::Computer;
using test::ProgramOptions;
using test::Remade;
using test::ReplayedProgram;
using test::Word;

constexpr std::uint64_t kUnit = gpu::FakeGpu::kUnit;
constexpr ProgramOptions kPrograms{.least_words = 64, .most_words = 2048, .moves = true};

// A device, its engine, and one stream on which everything is computed.
class Device final : public Computer {
 public:
  explicit Device(unsigned seed, bool managed = false, const std::string& inject = "")
      : gpu_(*new gpu::FakeGpu(seed, 4000)),
        driver_(&gpu_),
        engine_(own(managed), {.arena_bytes = 8_MiB, .granule_bytes = kUnit}),
        stream_(gpu_.make_stream()),
        remade_(engine_, kReplayer, OpOrder::any, inject) {
    engine_.compute_on(stream_);
    engine_.set_budget(200 * kUnit);
    remade_.computer = this;
    it = this;
  }

  Remade& remade() { return remade_; }
  gpu::FakeGpu& gpu() { return gpu_; }
  gpu::GpuEngine& engine() { return engine_; }

  void bring(const Uses& uses) override {
    for (const auto& [address, bytes] : uses) engine_.touch(address, bytes);
    for (const auto& [address, bytes] : uses) engine_.await(address, bytes);
  }
  void launch(const Uses& uses, const std::function<void()>& kernel) override {
    gpu_.launch(stream_, uses, kernel);
  }
  void show(const Uses& uses) override {
    engine_.tick();
    bring(uses);
    engine_.finish();
  }

 private:
  gpu::Driver& own(bool managed) {
    if (managed) driver_ = gpu::make_managed_driver(std::move(driver_));
    return *driver_;
  }
  static void name_stream() { it->engine_.compute_on(it->stream_); }
  // As ByteReplayer, in memory of the device.
  static int replay(void* const* handles, std::size_t count, sentinel_give give, void* context) {
    std::map<std::uint64_t, std::pair<Word*, std::size_t>> scratch;
    for (std::size_t r = 0; r < count; ++r) it->run_again(handles[r], scratch);
    for (const auto& [number, made] : scratch)
      give(context, number, made.first, made.second * sizeof(Word));
    const std::lock_guard guard(it->remade_.lock);
    for (const auto& [number, made] : scratch)
      it->remade_.space.release(reinterpret_cast<std::uintptr_t>(made.first));
    return 0;
  }
  void run_again(void* handle, std::map<std::uint64_t, std::pair<Word*, std::size_t>>& scratch) {
    auto& op = *static_cast<ByteOp*>(handle);
    op.seed += op.unsteady ? 1 : 0;
    Uses uses;
    const auto used = [&uses](Word* words, std::size_t count) {
      uses.emplace_back(reinterpret_cast<std::uintptr_t>(words), count * sizeof(Word));
      return words;
    };
    std::vector<const Word*> in;
    std::vector<Word*> out, updated;
    for (const auto& each : op.in) {
      const auto at = scratch.find(each.number);
      in.push_back(used(at != scratch.end() ? at->second.first : each.address, each.words));
    }
    for (std::size_t o = 0; o < op.out.size(); ++o) {
      const auto& each = op.out[o];
      const bool here = scratch.contains(each.number);
      if (!here) scratch[each.number] = {allocate(each.words), each.words};
      updated.push_back(!here && o < op.updates ? used(each.address, each.words) : nullptr);
      out.push_back(used(scratch[each.number].first, each.words));
    }
    gpu_.launch(stream_, uses, [op, in, out, updated] {
      for (std::size_t o = 0; o < out.size(); ++o)
        if (updated[o] != nullptr) std::copy_n(updated[o], op.out[o].words, out[o]);
      ByteOp::compute_apart(op, in, out);
    });
  }
  Word* allocate(std::size_t words) {
    const std::lock_guard guard(remade_.lock);
    auto* tensor = remade_.space.allocate(words * sizeof(Word), LiveTensor::kUnplanned, false);
    if (tensor == nullptr) std::abort();
    auto* memory = reinterpret_cast<Word*>(tensor->address);
    return memory;
  }

  static inline Device* it = nullptr;
  static constexpr sentinel_replayer kReplayer{
      .replay = replay, .drop = ByteReplayer::drop, .able = nullptr, .launches = name_stream};

  gpu::FakeGpu& gpu_;
  std::unique_ptr<gpu::Driver> driver_;
  gpu::GpuEngine engine_;
  const gpu::Stream stream_;
  Remade remade_;
};

class RemakingOverGpu : public testing::TestWithParam<std::tuple<unsigned, bool>> {
 protected:
  Device device{std::get<0>(GetParam()), std::get<1>(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(PoolsAndManaged, RemakingOverGpu,
                         testing::Combine(testing::Range(1u, 7u), testing::Bool()));

TEST_P(RemakingOverGpu, RandomProgramsGiveTheBytesOfPlainOnes) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    ReplayedProgram program(device.remade(), kPrograms, seed);
    ASSERT_TRUE(program.run()) << "seed " << seed;
    ASSERT_EQ(device.remade().space.live_bytes(), 0u) << "seed " << seed;
    ASSERT_EQ(ByteReplayer::recipes, 0) << "seed " << seed;
  }
  device.gpu().finish();
  EXPECT_THAT(device.gpu().complaints(), testing::IsEmpty());
  const auto counters = device.engine().counters();
  EXPECT_GT(device.remade().remaking.counters().replays, 100u);
  EXPECT_GT(counters.discarded_bytes, 100 * kUnit);
  EXPECT_GT(counters.refilled_bytes, 50 * kUnit);
  EXPECT_GT(counters.demoted_bytes, 0u);
  EXPECT_LE(counters.peak_bytes, 200 * kUnit);
}

TEST_P(RemakingOverGpu, WhatNeverMakesTheSameTwiceIsNotGivenUp) {
  auto options = kPrograms;
  options.unsteady = options.reaches = true;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    ReplayedProgram program(device.remade(), options, seed);
    ASSERT_TRUE(program.run()) << "seed " << seed;
  }
  const auto& remaking = device.remade().remaking;
  EXPECT_GT(remaking.counters().discarded_bytes, 0u);
  EXPECT_FALSE(remaking.trials().refused.empty());
}

// Each in a process of its own, which tells with its status: 0 is right bytes, 1 wrong ones.
int with_fault(const std::string& inject, std::uint64_t seed, bool watched) {
  const auto child = fork();
  if (child == 0) {
    freopen("/dev/null", "w", stderr);
    auto options = kPrograms;
    options.steps = watched ? 3 : 1;
    if (watched) setenv("SENTINEL_WITNESS", "a test's", 1);
    auto& device = *new Device(static_cast<unsigned>(seed), false, inject);
    _exit(ReplayedProgram(device.remade(), options, seed).run() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class RemakingOverGpuFaults : public testing::TestWithParam<const char*> {};

// In all of the first step, whatever forks in it, and in each one that `sentinel verify` watches.
TEST_P(RemakingOverGpuFaults, GiveRightBytesOrNoneInAHashedStep) {
  std::map<int, int> ended;
  for (std::uint64_t seed = 1; seed <= 40; ++seed)
    for (const auto& [which, watched] : {std::pair(1, false), {9, false}, {9, true}})
      ++ended[with_fault(fmt::format(fmt::runtime(GetParam()), which), seed, watched)];
  EXPECT_EQ(ended[0] + ended[125], 120);
  const bool only_drops = !std::string_view(GetParam()).starts_with("remake");
  EXPECT_EQ(ended[125] == 0, only_drops);
}
INSTANTIATE_TEST_SUITE_P(All, RemakingOverGpuFaults,
                         testing::Values("remake:{}:FLIP", "remake:{}:DROP", "remake:{}:EIO",
                                         "note:{}:DROP", "trial:{}:FLIP"));

// Two threads' ops at once: what each has read is known by no order, so neither has a recipe.
TEST(RemakingOverGpuInAnyOrder, OpsAtTheSameTimeAreNotDescribed) {
  Device device(1);
  auto& remaking = device.remade().remaking;
  std::unique_lock guard(device.remade().lock);
  const auto live = *device.remade().space.allocate(kUnit, LiveTensor::kUnplanned, false);
  const auto makes = [&](Remaking::Op& op) {
    const TensorNumber made[] = {remaking.number(live)};
    ++ByteReplayer::recipes;
    remaking.note(new ByteOp, op, {}, made);
    return remaking.trials().ops + (op.untried != nullptr ? 1 : 0);
  };
  Remaking::Op alone, first, second;
  remaking.op_begins(alone, "alone", true, 1);
  EXPECT_EQ(makes(alone), 1u);
  remaking.op_closes(alone);
  remaking.op_begins(first, "first", true, 2);
  remaking.op_begins(second, "second", true, 3);
  EXPECT_EQ(makes(first), 0u);
  remaking.op_closes(first);
  EXPECT_EQ(makes(second), 0u);
  remaking.op_closes(second);
  remaking.op_begins(alone, "alone", true, 4);
  EXPECT_EQ(makes(alone), 1u);
  remaking.op_closes(alone);
  alone.untried.reset();
  guard.unlock();
  remaking.all_there();
  EXPECT_EQ(ByteReplayer::recipes, 0);
}

}  // namespace
}  // namespace sentinel
