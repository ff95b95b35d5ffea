// What every engine must do (engine/engine.h): an implementation joins by a class with
//   static std::unique_ptr<Engine> make(std::uint64_t arena_bytes);   // null: not on this machine
// Tensors here share no granule. Each engine's own tests show how it treats one that is shared.
#pragma once

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "base/units.h"
#include "engine/engine.h"

namespace sentinel {

template <class Made>
class EngineContract : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kTensor = 2_MiB, kTensors = 40, kBudget = 20 * kTensor;

  void SetUp() override {
    engine = Made::make(256_MiB);
    if (!engine) GTEST_SKIP() << "this engine cannot be had here";
  }

  std::uintptr_t at(std::uint64_t t) const { return engine->arena() + t * kTensor; }
  std::uint64_t* words(std::uint64_t t) { return reinterpret_cast<std::uint64_t*>(at(t)); }
  void born(std::uint64_t t) {
    wanted[t] = engine->on_allocate(at(t), kTensor);
    if (!engine->guarded()) engine->device()->finish();
    for (std::uint64_t i = 0; i < kTensor / 8; ++i) words(t)[i] = t * 1000003 + i;
    engine->tick();
  }
  void all_born() {
    for (std::uint64_t t = 0; t < kTensors; ++t) born(t);
  }
  // For an op of its own. Without a guard that has to be asked for.
  void use(std::uint64_t t) {
    if (engine->guarded()) return;
    engine->tick();
    engine->await(at(t), kTensor);
    engine->device()->finish();
  }
  void refill(std::uint64_t t, const void* source) {
    engine->tick();
    engine->refill(at(t), kTensor, source);
    if (!engine->guarded()) engine->device()->finish();
  }
  bool intact() {
    for (std::uint64_t t = 0; t < kTensors; ++t) {
      use(t);
      for (std::uint64_t i = 0; i < kTensor / 8; ++i)
        if (words(t)[i] != t * 1000003 + i) return false;
    }
    return true;
  }
  void want(std::uint64_t t, bool want) {
    if (wanted[t] == want) return;
    wanted[t] = want;
    want ? engine->promote(at(t), kTensor) : engine->demote(at(t), kTensor);
  }

  std::unique_ptr<Engine> engine;
  bool wanted[kTensors] = {};
};

TYPED_TEST_SUITE_P(EngineContract);

TYPED_TEST_P(EngineContract, KeepsContentsWithinItsBudget) {
  this->engine->set_budget(this->kBudget);
  this->all_born();
  EXPECT_TRUE(this->intact());
  EXPECT_LE(this->engine->counters().peak_bytes, this->kBudget);
}

TYPED_TEST_P(EngineContract, KeepsContentsWhateverMoves) {
  this->engine->set_budget(this->kBudget);
  this->all_born();
  for (std::uint64_t round = 0; round < 5; ++round) {
    for (std::uint64_t t = 0; t < this->kTensors; ++t) this->want(t, (t + round) % 3 == 0);
    for (std::uint64_t t = round % 3; t < this->kTensors; t += 3)
      if (this->wanted[t]) this->engine->await(this->at(t), this->kTensor);
    this->engine->tick();
  }
  EXPECT_TRUE(this->intact());
  EXPECT_LE(this->engine->counters().peak_bytes, this->kBudget);
  EXPECT_GT(this->engine->counters().demoted_bytes, 0u);
  EXPECT_GT(this->engine->counters().promoted_bytes, 0u);
}

TYPED_TEST_P(EngineContract, AddressesServeAgainAfterDeath) {
  this->engine->set_budget(this->kBudget);
  for (int round = 0; round < 3; ++round) {
    this->all_born();
    EXPECT_TRUE(this->intact());
    for (std::uint64_t t = 0; t < this->kTensors; ++t)
      this->engine->on_free(this->at(t), this->kTensor, this->wanted[t]);
    this->engine->reuse_dead_blocks();
  }
}

TYPED_TEST_P(EngineContract, CountingAndBackKeepsContents) {
  if (this->engine->loop() == nullptr || !this->engine->loop()->can_count())
    GTEST_SKIP() << "page faults cannot be counted here";
  this->all_born();
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(this->engine->start_counting(), 0);
    EXPECT_TRUE(this->engine->counting());
    EXPECT_TRUE(this->intact());
    ASSERT_EQ(this->engine->stop_counting(), 0);
    EXPECT_TRUE(this->intact());
  }
}

TYPED_TEST_P(EngineContract, AChildSeesWhatThereWas) {
  if (!this->engine->guarded()) GTEST_SKIP() << "a GPU's memory is not a child's";
  this->engine->set_budget(this->kBudget);
  this->all_born();
  this->engine->before_fork();
  const pid_t child = fork();
  if (child == 0) {
    this->engine->after_fork_in_child();
    usleep(50000);  // the parent goes on meanwhile
    _exit(this->intact() ? 0 : 1);
  }
  this->engine->after_fork_in_parent();
  for (std::uint64_t t = 0; t < this->kTensors; ++t) this->words(t)[0] = ~0ull;
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (std::uint64_t t = 0; t < this->kTensors; ++t) EXPECT_EQ(this->words(t)[0], ~0ull);
}

// An engine that cannot lose contents keeps them.
TYPED_TEST_P(EngineContract, WhatIsDiscardedIsAsItWasOnceItIsFilledAgain) {
  class Nobody final : public Remaker {  // all is filled before it is touched
    void touched(std::uintptr_t) noexcept override { std::abort(); }
  } nobody;
  this->engine->remake_with(&nobody);
  this->engine->set_budget(this->kBudget);
  this->all_born();
  std::vector<std::uint64_t> made(this->kTensor / 8);
  std::uint64_t lost = 0;
  for (std::uint64_t t = 0; t < this->kTensors; t += 3) {
    lost += this->engine->discard(this->at(t), this->kTensor, {});
    for (std::uint64_t i = 0; i < made.size(); ++i) made[i] = t * 1000003 + i;
    if (t % 2 == 0) this->refill(t, made.data());
  }
  for (std::uint64_t t = 3; t < this->kTensors; t += 6) {
    for (std::uint64_t i = 0; i < made.size(); ++i) made[i] = t * 1000003 + i;
    this->refill(t, made.data());
  }
  EXPECT_TRUE(this->intact());
  EXPECT_EQ(this->engine->counters().discarded_bytes, lost);
  EXPECT_EQ(this->engine->counters().refilled_bytes, lost);
  this->engine->remake_with(nullptr);
}

REGISTER_TYPED_TEST_SUITE_P(EngineContract, KeepsContentsWithinItsBudget,
                            KeepsContentsWhateverMoves, AddressesServeAgainAfterDeath,
                            CountingAndBackKeepsContents, AChildSeesWhatThereWas,
                            WhatIsDiscardedIsAsItWasOnceItIsFilledAgain);

}  // namespace sentinel
