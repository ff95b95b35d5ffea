// One kind of step that has been profiled, with its plan (the paper's buckets, section IV-E): what
// is needed to recognise it and to walk the plan while it runs. Guarded by the session's lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "plan/step/interval.h"
#include "plan/step/peaks.h"
#include "plan/step/storage.h"
#include "runtime/step/borders.h"
#include "runtime/step/drift.h"
#include "runtime/step/growth.h"
#include "runtime/step/matcher.h"
#include "runtime/step/rivalry.h"
#include "runtime/step/space.h"
#include "runtime/step/trial.h"
#include "sentinel/plan.h"
#include "sentinel/policy.h"
#include "sentinel/profile.h"

namespace sentinel {

class Bucket {
 public:
  Bucket(Profile profile, Plan plan, OpOrder order, Space& space,
         std::optional<Choice> late = std::nullopt);

  StepMatcher& matcher() { return matcher_; }
  const Plan& plan() const { return plan_; }
  const Profile& profile() const { return profile_; }
  std::uint32_t space_plan() const { return space_plan_; }

  // Finds the persistent tensors again (in another process they lie elsewhere): among those alive
  // now, in the order of their birth, by size.
  void bind(Space& space);
  // With its peaks within what is granted by now; without any where nothing is lent.
  void begin_step(const plan::PeakOptions& = {});
  // What the step before left behind is, in this one, what it frees after it has made the next.
  void take_over(Space& space) const;
  // The moves of an op, in the order of issue.
  void op_start(OpId op, std::vector<Move>& moves) { controller_->op_start(op, moves); }
  void op_end(OpId op, std::vector<Move>& moves) { controller_->op_end(op, moves); }

  // The live tensor that plays this role now, or null.
  LiveTensor* live(TensorId, Space&) const;
  // What has to be there before the op computes / what it uses.
  const std::vector<TensorId>& awaited(OpId op) const { return awaited_[op.index()]; }
  const std::vector<TensorId>& used(OpId op) const { return used_[op.index()]; }
  // Tensors from before the step that the plan has outside fast memory when it begins, and in it.
  const std::vector<TensorId>& away_at_start() const { return away_; }
  const std::vector<TensorId>& here_at_start() const { return here_; }
  // What the op accesses, and how often: page openings, or pages where they were not counted.
  struct Accesses {
    TensorId tensor;
    double count;
  };
  const std::vector<Accesses>& accesses(OpId op) const { return accesses_[op.index()]; }

  // The op uses more than the budget / and goes through all of it side by side.
  bool streams(OpId op) const { return streams_[op.index()] != Streaming::none; }
  bool side_by_side(OpId op) const { return streams_[op.index()] == Streaming::side_by_side; }
  const Borders& borders() const { return borders_; }
  std::uint32_t interval(OpId op) const { return intervals_.of(op.value); }
  Trials& trials() { return trials_; }
  const Trials& trials() const { return trials_; }
  bool moves_anything() const { return !plan_.moves.empty(); }
  // The plan replays ops: this one / none / before this op, to keep these tensors of theirs.
  bool replays(OpId op) const { return !replayed_.empty() && replayed_[op.index()]; }
  bool replays_ops() const { return !replayed_.empty(); }
  std::vector<TensorId> remade_before(OpId op) const;
  // What the replays before an op have taken so far.
  struct Replayed {
    std::uint64_t times = 0;  // steps in which there were any
    double us = 0;            // all of them together
  };
  void replayed_before(OpId op, double us) { ++took_[op].times, took_[op].us += us; }
  Replayed replayed_before(OpId op) const {
    const auto found = took_.find(op);
    return found != took_.end() ? found->second : Replayed{};
  }
  Growth& growth() { return anew_.growth; }
  Drift& drift() { return anew_.drift; }
  Rivalry& rivalry() { return anew_.rivalry; }

  // What its ops want beyond a base (plan/step/peaks.h), as far as this plan uses it.
  bool has_peaks() const { return !peaks_.beyond.empty(); }
  std::uint64_t beyond_base(OpId op) const { return has_peaks() ? peaks_.beyond[op.index()] : 0; }

 private:
  enum class Streaming : std::uint8_t { none, in_phases, side_by_side };

  void find_peaks(plan::PeakOptions);

  Profile profile_;
  Plan plan_;
  StepMatcher matcher_;
  std::uint32_t space_plan_;
  std::unique_ptr<Controller> controller_;
  std::vector<std::uintptr_t> persistent_;             // per tensor: its address, 0 for others
  std::vector<std::vector<TensorId>> awaited_, used_;  // per op
  std::vector<TensorId> away_, here_;
  std::vector<Streaming> streams_;  // per op
  std::vector<bool> replayed_;      // per op; empty where none is
  std::map<OpId, Replayed> took_;
  std::vector<plan::Left> left_;
  std::vector<std::vector<Accesses>> accesses_;  // per op
  Borders borders_;
  plan::Intervals intervals_;
  Trials trials_;
  struct {
    Growth growth;
    Drift drift;
    Rivalry rivalry;
  } anew_;  // when it is to be planned
  struct {
    plan::PeakOptions within;
    std::vector<std::uint64_t> beyond;  // per op; empty: nothing
  } peaks_;
};

}  // namespace sentinel
