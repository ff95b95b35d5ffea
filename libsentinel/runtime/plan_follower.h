// Follows plans, op by op: knows the kinds of step that have a plan, recognises which one is
// running, starts the moves that are due, and says where a new tensor belongs. It makes no plans
// and changes no budget.
//
// A step begins as the active bucket's kind. It may turn out to be of another known kind (its ops,
// or in any order its allocations, say so), or of the same ops with tensors of other sizes: it is
// then `resized`, and what fits into its planned place follows the plan. Or it is of none: it is
// then `diverged`, and runs by demand until it ends.
//
// Guarded by the session's lock, but for what says otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "runtime/limit/fast_limit.h"
#include "runtime/step/bucket.h"
#include "runtime/step/issued_moves.h"
#include "runtime/step/matcher.h"
#include "runtime/step/sizes.h"
#include "runtime/step/space.h"
#include "runtime/step/trial.h"

namespace sentinel {

class PlanFollower {
 public:
  // All outlive it. At most so many borders are kept.
  PlanFollower(Engine&, Space&, const FastLimit&, OpOrder, std::size_t most_borders);

  // One thread's op, as the plan knows it.
  struct Op {
    std::uint64_t name = 0;  // its hash
    Bucket* bucket = nullptr;
    StepMatcher::Cursor place;
    std::vector<LiveTensor> awaited;
    std::uint32_t interval = 0;
    // Of the tensors that died in the op: placement, share in fast memory.
    std::vector<std::pair<std::uint32_t, double>> died;
    // At its end; asked for where `discarding`, else the follower demotes them.
    std::vector<IssuedMoves::GivenUp> discards;
    bool discarding = false;
  };

  const std::vector<std::unique_ptr<Bucket>>& kinds() const { return buckets_; }  // of step
  // Some plan so far replays ops, but for those of which replays_ended() was told. Takes no lock.
  bool has_replays() const { return has_replays_.load(std::memory_order_relaxed); }
  void replays_ended();  // plans that are gone have none under way any more
  Bucket& add(Profile, Plan, std::optional<Choice> late);
  // That kind's steps have outgrown its plan, or its budget is another: this one takes its place.
  Bucket& replace(Bucket& kind, Profile, Plan, std::optional<Choice> late);
  void forget_plans();
  bool knows(std::uint64_t signature) const;
  // A step of this signature is of a known kind. In any order it need not be the same to the last
  // buffer.
  bool as_profiled(std::uint64_t signature) const;
  std::vector<std::vector<IntervalRow>> intervals() const;  // of each plan

  // The kind that the next step is taken for.
  Bucket* active() const { return active_; }
  bool follows() const { return active_ != nullptr; }
  bool moves_nothing() const { return active_ != nullptr && !active_->moves_anything(); }
  void activate(Bucket&);
  void stop() {  // no plan is followed until another is activated
    active_ = nullptr;
    moves_.forget();
    limit_.wants(0);
  }

  // The running step.
  void begin_step();
  void take_over();     // before it: tensors that the step before left play their roles in this one
  void end_on_trial();  // after it, where slow memory is used in place
  std::uint64_t signature() const { return now_.signature; }  // so far
  // The same of what two steps of a family have in common: in sequence, the ops alone.
  std::uint64_t family_signature() const {
    return order_ == OpOrder::sequence ? now_.ops_signature : now_.signature;
  }
  bool diverged() const { return now_.diverged; }
  bool resized() const { return now_.resized; }
  // At its end: how it differs from the active kind, if in sizes alone.
  std::optional<StepSizes::Difference> difference() const;
  struct Accesses {
    double all = 0, fast = 0;
  };
  const Accesses& accesses() const { return accesses_; }  // by the profile's counts

  IssuedMoves& moves() { return moves_; }

  // Of one thread. False, of op_start(): the step has just diverged, and goes on by demand.
  void before_first_op(Op&) const;
  void stay_with_step(Op& op) const {  // its bucket may be the active one no more
    if (op.bucket != active_) op.place = {};
  }
  [[nodiscard]] bool op_start(Op&, std::uint64_t name);
  void op_end(Op&);
  void demote_instead(const IssuedMoves::GivenUp&);  // it could not be discarded
  // Waits until the op's tensors are where the plan wants them. Without `lock`, the session's: it
  // may take long.
  void await(const Op&, std::mutex& lock);

  // Where the plan has what is allocated now, or LiveTensor::kUnplanned.
  std::uint32_t slot(Op&, bool in_op, std::uint64_t bytes);
  void allocated(std::uint64_t event, std::uint64_t bytes);
  void died(Op&, const LiveTensor&);

 private:
  bool on_track() const;
  struct Running {
    std::uint64_t signature = 0, ops_signature = 0;  // so far; of its ops alone
    std::uint32_t ops = 0;                           // begun
    bool changed = false;    // it turned out to be of another kind than it began
    bool diverged = false;   // it is not quite the active bucket's
    bool resized = false;    // it has the active bucket's ops, and other sizes
    bool misplaced = false;  // it made a tensor that has no place, since the last op began
  };
  bool follow(Op&, std::uint64_t prefix);
  void turn_to(Op&, Bucket&);
  void change_to(Bucket&);
  void bring(Bucket&);
  void prepare(Op&);
  void reuse_frames();
  bool leaves(const Op&, const LiveTensor&);
  void count_accesses(const Op&);
  double fast_share(const LiveTensor&) const;

  Engine& engine_;
  InPlaceMemory* const in_place_;  // or null
  Space& space_;
  const FastLimit& limit_;
  const OpOrder order_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::atomic<bool> has_replays_ = false;
  Bucket* active_ = nullptr;
  StepMatcher::Cursor prelude_;  // of what no op of this step makes
  Running now_;
  StepSizes sizes_;
  std::vector<Move> due_;  // of one op, reused
  IssuedMoves moves_;
  Accesses accesses_;  // in this step
};

}  // namespace sentinel
