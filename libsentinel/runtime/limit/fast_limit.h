// The limit of a run: how much fast memory tensors may have. That is --fast, or what a broker
// grants, or the part of the
// process's memory cgroup that the program leaves to tensors, which changes as the program grows
// (docs/design/budget.md). It sets the engine's budget and the summary's limit, and moves nothing.
//
//   before a plan: bytes of --fast, or the cgroup's room, or none
//   with the first plan: the plan's bytes, which later kinds of step keep
//
// Guarded by the session's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "capture/recorder.h"
#include "engine/engine.h"
#include "engine/gpu/cuda_driver.h"
#include "options/options.h"
#include "plan/step/peaks.h"
#include "runtime/limit/grant.h"
#include "runtime/limit/summary.h"
#include "runtime/limit/voice.h"
#include "sentinel/profile.h"

namespace sentinel {

class FastLimit {
 public:
  // All outlive it; no driver: the fast tier is no GPU's memory.
  FastLimit(const SessionOptions&, Engine&, gpu::Driver*, Summary&, const Voice&, OpOrder);

  // Bytes; 0: there is none yet, or none at all.
  std::uint64_t bytes() const { return summary_.fast_limit_bytes; }
  // Asked for, or found.
  bool limited() const { return shared() || !options_.fast.unlimited() || bytes() != 0; }
  // A broker divides memory among several trainings.
  bool shared() const { return grant_ != nullptr; }
  // Before the first tensor a broker has to admit this training: its grant, to wait for without the
  // session's lock; or null.
  std::shared_ptr<Grant> awaits_admission() const {
    return grant_ && !grant_->admitted() ? grant_ : nullptr;
  }
  bool admitted();  // it has; whether that is news
  // At a step's border: what the broker grants otherwise than that which plans are for.
  enum class Regrant : std::uint8_t { none, drive, bytes };
  Regrant follow_grant();
  // Of the slow tier's time, the part on which plans may count.
  double drive() const { return grant_ ? grant_->drive() : 1; }
  // What a step wants in its peaks beyond what it always has, where a broker lends it. `most` is 0
  // where nobody does.
  plan::PeakOptions peaks() const;
  void wants(std::uint64_t beyond) const noexcept {
    if (grant_) grant_->wants(beyond);
  }
  // The memory cgroup is the limit, for good or until there is a plan.
  bool within_cgroup() const { return within_cgroup_; }

  void hold_before_plan();
  void follow_cgroup(bool in_step);
  // The same within a step, where it was not looked at for a while.
  void follow_cgroup_now_and_then() {
    if (within_cgroup_) follow_cgroup_if_due();
  }
  // What a plan for this profile may use. The first kind of step settles it for all others.
  std::uint64_t for_plan(const Profile&) const;
  // Before the first plan: whether the profile's tensors fit into the cgroup's room is known now.
  void settle(const Profile&);
  // The same step takes other times by now.
  void drifted(const Profile& profile) {
    if (grant_) grant_->drifted(profile);
  }
  // The first plan holds from now on; limited: its bytes are the limit.
  void adopt(std::uint64_t plan_bytes, bool limited);
  // There will be no plans: a pager decides within so many bytes.
  void adopt_for_pager(std::uint64_t bytes);
  // The plan is dropped. Of a step that is alike the limit stays.
  void forget_plan(bool alike);
  // Sentinel manages nothing any more.
  void lift();

  // Of a GPU, bytes: before a profile tells the peak, the most that was alive until now stands for
  // it.
  std::uint64_t device_budget(std::uint64_t most_live_bytes) const;
  bool device_has_room(std::uint64_t live_bytes, std::uint64_t bytes) const;

 private:
  std::uint64_t share_of(std::uint64_t peak_bytes) const;
  std::uint64_t frames_of_peaks() const { return 2 * engine_.granule(); }  // in ample memory
  std::uint64_t within_room(std::uint64_t share) const;
  void follow_cgroup_if_due();
  std::optional<std::uint64_t> cgroup_room() const;
  void limit_is(std::uint64_t bytes);
  void hold(std::uint64_t bytes);

  const SessionOptions& options_;
  Engine& engine_;
  gpu::Driver* driver_;
  Summary& summary_;
  const Voice& voice_;
  struct {                               // what plans are for
    std::optional<std::uint64_t> bytes;  // of the first one; none: there is none yet
    double drive = 1;                    // part of its time
  } planned_;
  bool within_cgroup_ = false;
  bool keeps_limit_ = false;            // there will be another plan for the step that settled it
  std::uint64_t cgroup_budget_ = 0;     // bytes of it for tensors
  double looked_us_ = 0;                // when it was last looked at
  unsigned ranks_;                      // of this machine, which share its memory cgroup
  bool told_of_growth_ = false;         // of what is not tensors
  mutable bool told_of_least_ = false;  // that the share is smaller than any budget that works
  std::shared_ptr<Grant> grant_;        // null: without a broker
  std::shared_ptr<Grant> left_;         // it still tells the broker
};

}  // namespace sentinel
