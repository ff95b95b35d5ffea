// Gaps that are made again, where tensors share granules: which of those that a policy wants are
// legal and have room, the replays that they need, and what those ask of a schedule.
//
// A replay before op k reads its inputs there, so k is a use of theirs: the schedule brings them
// back for it. It computes in memory of its own, which is held beside all that k finds there; what
// k itself makes comes after it. What a step made and reads again in the same step may be
// discarded; the replays before one op are kMostRecipes at most.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule/basis.h"
#include "plan/schedule/schedule.h"
#include "sentinel/plan.h"

namespace sentinel::plan {

struct LostGap {
  std::uint32_t storage = 0, use = 0;
  // Where it ends: a use, or an op before which a replay makes it on its way.
  std::uint32_t next = 0;
};

struct Remade {
  std::vector<LostGap> gaps;       // that are made again, by storage and use
  std::vector<double> cost;        // of each: microseconds of replays, hashes and copies
  std::vector<LostGap> refused;    // illegal, or without room
  std::vector<Recompute> replays;  // as Plan::recomputations
  std::vector<Storage> storages;   // the basis', with the uses by replays
  std::vector<ReplayRead> reads;   // sorted
  // Per op: what its replays compute in, beyond what the op makes, which is not there yet.
  std::vector<std::uint64_t> memory;
};

// `keep`: what a replay makes on its way and a later op reads stays from then on, for the schedule
// to deal with; otherwise it is made once more then.
Remade remade(const Basis&, std::uint64_t limit, const std::vector<LostGap>&, bool keep);

Demand demand(const Basis&, const Remade&);

// Says of each discard of the plan by which replays it is made again, what they cost, and what a
// move would.
void give_replay_reasons(Plan&, const Profile&, const Machine&);

}  // namespace sentinel::plan
