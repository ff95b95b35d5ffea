// Which ops may be replayed, and when. A tensor's *version* is the number of ops of the
// step that have written it; an op reads the version that the writes before it left.
//
// Replaying op r right before op k is legal if every tensor r reads has, at k, the version that r
// first saw and those contents exist: the tensor is alive at k, or the version is remade by a
// replay before the same k (so an op that updates an intermediate in place follows the replay of
// that intermediate's maker). An output that is kept must have, at k, the version that r first
// made. Writes to persistent tensors by a replay are discarded. A persistent tensor that r itself
// updates is its own statistic (the running mean of a normalisation): it is read for that update,
// which is discarded, and constrains nothing. Never replayed: ops of the optimizer phase, ops that
// read nothing (data loading, initial values), and random ops (random(), by name) since no seed is
// saved.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sentinel/plan.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

// Whether the op's name says that it draws random numbers (dropout, bernoulli, rand, normal_, ...).
bool random(const Op&);

class Replay {
 public:
  explicit Replay(const Profile&);

  // Version of the tensor when op k starts: how many ops before k (of this step) wrote it.
  std::uint32_t version(TensorId, OpId k) const;

  bool persistent(TensorId t) const { return persistent_[t.index()]; }

  // Whether the tensor still exists when op k starts, if it was made before.
  bool alive(TensorId t, OpId k) const { return persistent_[t.index()] || k <= last_[t.index()]; }

  // Whether op r can be replayed at any place at all.
  bool possible(OpId r) const { return possible_[r.index()]; }

  // Whether the op both reads and writes this persistent tensor.
  bool own_statistic(TensorId, OpId) const;

  // Whether r's inputs still have at k the versions that r saw; which of them are no longer alive
  // at k and so would have to be remade first, is appended.
  bool inputs_valid(OpId r, OpId k, std::vector<TensorId>& dead) const;

  // The op before k that made the version which k would read of the tensor; none if it was made
  // before the step.
  std::optional<OpId> maker(TensorId, OpId k) const;

 private:
  std::vector<std::vector<std::uint32_t>> writes_;  // per tensor: ops that write it, ascending
  std::vector<OpId> last_;                          // per tensor: alive until this op's end
  std::vector<bool> persistent_;                    // per tensor
  std::vector<bool> possible_;                      // per op
  const Profile& profile_;
};

// The replays that make the contents of `wanted` available before op `before`, in order of
// execution: its maker, and before it the makers of inputs that are not `available` then (alive and
// not discarded). Outputs to keep are not filled in but for `wanted`. Empty where that is not
// legal, or takes more than `most` replays.
std::vector<Recompute> replay_chain(const Profile&, const Replay&, TensorId wanted, OpId before,
                                    const std::function<bool(TensorId)>& available,
                                    std::size_t most = 64);

// The replays before one op, in the runs in which a training run makes them: each for what is kept
// of one of them or of several, which finds what the runs before it have kept. No op is in two.
// Their indices, ascending within a run. Replays for which nothing is kept are in the last run.
std::vector<std::vector<std::size_t>> replay_runs(const Profile&, std::span<const Recompute>);

// What the replays before one op (those of one `before`) hold at most beyond what is alive when
// that op starts, in bytes rounded to granules: outputs that are not kept until their last reader
// among them. Where granules are frames, a training run replays into memory of its own and copies
// what is kept: all outputs of one run.
std::uint64_t replay_bytes(const Profile&, std::span<const Recompute>, std::uint64_t granule);

// Whether each of the replays before one op, run in this order, finds of what others of them made
// the version that it read in the step, and whether what is kept is what the op reads.
bool finds_its_versions(const Profile&, const Replay&, std::span<const Recompute>);

constexpr std::size_t kMostRecipes = 64;  // that a training run replays before one op

// What is illegal in the plan's recomputations, in words; part of verify().
std::vector<std::string> illegal_replays(const Plan&, const Profile&);

}  // namespace sentinel::plan
