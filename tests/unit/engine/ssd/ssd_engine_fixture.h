// An engine on a small arena, of each mechanism and each fallback, and blocks whose contents are
// known.
#pragma once

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "base/units.h"
#include "engine/ssd/ssd_engine.h"
#include "sentinel/error.h"
#include "unit/capture/fake_rwp.h"

namespace sentinel {

constexpr std::uint64_t kArena = 256_MiB;

struct Mode {
  const char* name;
  bool use_move;
  IoBackend io;
  bool bars = false;  // on a kernel whose userfaultfd has read-write protection, which is pretended
};

// Every mechanism and every fallback passes the same tests.
class EngineTest : public ::testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    if (GetParam().bars) {
      if (const auto why = FakeRwp::absent(); !why.empty()) GTEST_SKIP() << why;
      others = std::make_unique<OtherUffdCalls>(rwp);
    }
    try {
      FaultLoop::open();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    engine = std::make_unique<SsdEngine>(options());
  }

  EngineOptions options() const {
    return {.slow_directory = "/var/tmp",
            .io = GetParam().io,
            .use_move = GetParam().use_move,
            .bars = GetParam().bars,
            .arena_bytes = kArena};
  }

  std::uint64_t* words(std::uint64_t block) {
    return reinterpret_cast<std::uint64_t*>(engine->arena() + block * kGranule);
  }
  static std::uint64_t value(std::uint64_t block, std::uint64_t i) { return block * 1000003 + i; }

  void fill(std::uint64_t block) {
    for (std::uint64_t i = 0; i < kGranule / 8; ++i) words(block)[i] = value(block, i);
  }
  bool intact(std::uint64_t block) {
    for (std::uint64_t i = 0; i < kGranule / 8; ++i)
      if (words(block)[i] != value(block, i)) return false;
    return true;
  }
  void on_allocate(std::uint64_t block) {
    engine->on_allocate(engine->arena() + block * kGranule, kGranule);
  }
  std::uintptr_t at(std::uint64_t block) { return engine->arena() + block * kGranule; }
  // Blocks from 0 on are born, filled and there, within a budget.
  void begin_with(std::uint64_t blocks, std::uint64_t frames) {
    engine->set_budget(frames * kGranule);
    for (std::uint64_t b = 0; b < blocks; ++b) on_allocate(b), fill(b);
    engine->tick();
    engine->await(at(0), blocks * kGranule);  // the last block's arrival has been noted
  }

  // The status of a forked child that checks what it finds, while the parent goes on.
  template <class Check, class Meanwhile>
  int status_of_child(Check&& check, Meanwhile&& meanwhile) {
    engine->before_fork();
    const pid_t child = fork();
    if (child == 0) {
      engine->after_fork_in_child();
      usleep(100000);  // the parent goes on meanwhile
      _exit(check() ? 0 : 1);
    }
    engine->after_fork_in_parent();
    meanwhile();
    int status = -1;
    waitpid(child, &status, 0);
    return status;
  }

  FakeRwp rwp;
  std::unique_ptr<OtherUffdCalls> others;
  std::unique_ptr<SsdEngine> engine;
};

}  // namespace sentinel
