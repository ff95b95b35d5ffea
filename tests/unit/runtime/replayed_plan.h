// A plan with replays of a recorded step, which a policy need not make; and processes for sessions,
// which are never destroyed.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "plan/check/verify.h"
#include "plan/step/replay.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sentinel/plan.h"
#include "sentinel/policy.h"
#include "sim/machine_file.h"
#include "trace/read_any.h"

namespace sentinel::test {

// In a process of its own. 77: it could not begin.
template <class Run>
int apart(Run run) {
  const auto child = fork();
  if (child == 0) {
    int status = 78;
    try {
      status = run();
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      status = 77;
    }
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Move m becomes a discard, and the tensor's next promotion a replay.
inline Plan with_replay(Plan plan, const Profile& profile, std::size_t m) {
  auto& leaves = plan.moves[m];
  const auto comes = std::find_if(plan.moves.begin(), plan.moves.end(), [&](const Move& move) {
    return move.tensor == leaves.tensor && move.direction == Direction::promote &&
           move.trigger > leaves.trigger && move.deadline >= move.trigger;
  });
  if (comes == plan.moves.end()) return plan;
  const auto before = comes->deadline;
  for (const auto& replay : plan.recomputations)
    if (replay.before == before) return plan;
  const auto lives = lifetimes(profile);
  const auto available = [&](TensorId tensor) {
    return lives[tensor.index()].persistent || lives[tensor.index()].last_op >= before;
  };
  const plan::Replay legal(profile);
  auto chain = plan::replay_chain(profile, legal, leaves.tensor, before, available);
  if (chain.empty()) return plan;
  leaves.direction = Direction::discard;
  leaves.deadline = leaves.trigger;
  plan.moves.erase(comes);
  plan.recomputations.insert(
      std::ranges::upper_bound(plan.recomputations, before, {}, &Recompute::before), chain.begin(),
      chain.end());
  return plan;
}

// A policy's plan that moves, and of each tensor that it takes away and brings back, a replay in
// the place of both moves where that is legal.
inline Plan replayed_plan(const std::filesystem::path& path, std::uint64_t budget) {
  const auto profile = read_any(path);
  auto machine = sim::find_machine("a100-g10");
  machine.granule_bytes = 2u << 20;
  machine.exclusive = true;
  auto policy = make_policy("sentinel");
  auto plan = dynamic_cast<PlannedPolicy&>(*policy).plan(profile, machine,
                                                         {.fast_bytes = budget,
                                                          .recompute = false,
                                                          .parts = false,
                                                          .copies = false,
                                                          .in_place = false});
  plan.profile_path = std::filesystem::absolute(path);
  for (std::size_t m = 0; m < plan.moves.size(); ++m)
    if (plan.moves[m].direction == Direction::demote)
      if (auto changed = with_replay(plan, profile, m); plan::verify(changed, profile).empty())
        plan = std::move(changed);
  return plan;
}

}  // namespace sentinel::test
