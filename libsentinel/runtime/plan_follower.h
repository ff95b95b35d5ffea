// Follows plans, op by op: knows the kinds of step that have a plan, recognises which one is
// running, starts the moves that are due, and says where a new tensor belongs. It makes no plans
// and changes no budget.
//
// A step begins as the active bucket's kind. It may turn out to be of another known kind (its ops,
// or in any order its allocations, say so), or of none: it is then `diverged`, and runs by demand
// until it ends.
//
// Guarded by the session's lock, but for what says otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "runtime/limit/fast_limit.h"
#include "runtime/step/bucket.h"
#include "runtime/step/kept_borders.h"
#include "runtime/step/matcher.h"
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
  };

  // Kinds of step.
  std::size_t plans() const { return buckets_.size(); }
  bool has_plans() const { return !buckets_.empty(); }
  Bucket& add(Profile, Plan, std::optional<Choice> late);
  void forget_plans();
  bool knows(std::uint64_t signature) const;
  // A step of this signature is of a known kind. In any order it need not be the same to the last
  // buffer.
  bool as_profiled(std::uint64_t signature) const;
  std::vector<std::vector<IntervalRow>> intervals() const;  // of each plan

  // The kind that the next step is taken for.
  Bucket* active() { return active_; }
  bool follows() const { return active_ != nullptr; }
  bool moves_nothing() const { return active_ != nullptr && !active_->moves_anything(); }
  void activate(Bucket&);
  void activate_first() { activate(*buckets_.front()); }
  void stop() { active_ = nullptr; }  // no plan is followed until another is activated

  // The running step.
  void begin_step();
  void take_over();     // before it: tensors that the step before left play their roles in this one
  void end_on_trial();  // after it, where slow memory is used in place
  std::uint64_t signature() const { return hash_; }  // so far
  bool diverged() const { return diverged_; }
  struct Accesses {
    double all = 0, fast = 0;
  };
  const Accesses& accesses() const { return accesses_; }  // by the profile's counts
  void let_borders_go() { borders_.let_all_go(); }

  // Of one thread. False, of op_start(): the step has just diverged, and goes on by demand.
  void before_first_op(Op&) const;
  void stay_with_step(Op& op) const {  // its bucket may be the active one no more
    if (op.bucket != active_) op.place = {};
  }
  [[nodiscard]] bool op_start(Op&, std::uint64_t name);
  void op_end(Op&);
  // Waits until the op's tensors are where the plan wants them. Without `lock`, the session's: it
  // may take long.
  void await(const Op&, std::mutex& lock);

  // Where the plan has what is allocated now, or LiveTensor::kUnplanned.
  std::uint32_t slot(Op&, bool in_op, std::uint64_t bytes);
  void allocated(std::uint64_t event, std::uint64_t bytes);
  void died(Op&, const LiveTensor&);

 private:
  bool on_track() const;
  bool follow(Op&, std::uint64_t prefix);
  Bucket* bucket_of_prefix(std::uint64_t prefix);
  Bucket* bucket_of_allocation(std::uint64_t event);
  void change_to(Bucket&);
  void bring(Bucket&);
  void prepare(Op&);
  void apply(OpId);
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
  Bucket* active_ = nullptr;
  StepMatcher::Cursor prelude_;  // of what no op of this step makes
  bool changed_ = false;         // this step turned out to be of another kind than it began
  bool diverged_ = false;        // this step is not quite the active bucket's
  std::uint64_t hash_ = 0;       // this step's signature so far
  std::uint32_t ops_ = 0;        // begun in this step
  std::vector<Move> moves_;      // of one op, reused
  KeptBorders borders_;
  Accesses accesses_;  // in this step
};

}  // namespace sentinel
