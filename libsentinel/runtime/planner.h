// From a profile to a decision about what moves: a plan, or for a policy without plans a pager.
// Knows the machine that plans are made for. Follows nothing, and sets no budget.
// Guarded by the session's lock.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "engine/engine.h"
#include "options/options.h"
#include "runtime/limit/fast_limit.h"
#include "runtime/limit/voice.h"
#include "runtime/replay/remaking.h"
#include "sentinel/machine.h"
#include "sentinel/paging.h"
#include "sentinel/plan.h"
#include "sentinel/policy.h"
#include "sentinel/profile.h"

namespace sentinel {

class Planner {
 public:
  // All outlive it.
  Planner(const SessionOptions&, const Engine&, const FastLimit&, const Voice&);

  // Describes the machine now, while a GPU still has room to be measured. Throws Error, as all
  // here.
  void describe_machine();
  // The stored plan that the options name, with its profile.
  std::pair<Profile, Plan> stored_plan() const;
  Profile stored_profile() const;

  struct Outcome {
    std::optional<Plan> plan;
    std::optional<Plan> rival;     // the simulator finds it worse; steps are to tell
    std::unique_ptr<Pager> pager;  // or this
    std::uint64_t fast_bytes = 0;  // that it is for
  };
  Outcome decide(const Profile&);
  // Plans that replay ops are refused where this cannot.
  void replay_with(const Remaking& remaking) { remaking_ = &remaking; }
  bool can_replay() const {
    return remaking_ != nullptr && remaking_->possible() && !options_.tiers.three();
  }
  // The adaptor could not, by its settings, when a plan was made last.
  bool settings_forbade() const { return settings_forbade_; }
  // Once a plan was made, or describe_machine() was called.
  const Machine& described_machine() const { return machine_; }
  // A plan that this machine cannot execute, or that does not fit its profile, is refused. Holds
  // for what is decided.
  void require_valid(const Plan&, const Profile&) const;

 private:
  Machine machine() const;
  Machine shared_machine() const;
  Outcome page(PagedPolicy&, const Profile&) const;
  static Plan planned(PlannedPolicy&, const Profile&, const Machine&, const PlanOptions&);
  static std::optional<Plan> better(const Plan&, const Profile&, const Machine&, PlanOptions,
                                    bool steps_tell);
  void tell_large_ops(const Plan&) const;
  bool can_replay_now() const { return can_replay() && remaking_->possible_now(); }

  const SessionOptions& options_;
  const Engine& engine_;
  const FastLimit& limit_;
  const Voice& voice_;
  Machine machine_;
  const Remaking* remaking_ = nullptr;
  bool settings_forbade_ = false;
};

}  // namespace sentinel
