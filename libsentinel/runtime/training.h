// A training, step by step: the objects that know the running step, the plans and the limit, and
// the transitions between steps. The session calls it at the ends of steps, with its lock held, and
// tells the objects what happens within one.
//
//   warm-up -> (counting) profile -> plan -> steady            sentinel run
//   warm-up -> profile -> pager -> steady                      the same, of a policy without plans
//   warm-up -> (counting) profile -> written, then idle        sentinel record
//
// Guarded by the session's lock. What throws throws Error.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/gpu/cuda_driver.h"
#include "options/options.h"
#include "runtime/limit/fast_limit.h"
#include "runtime/limit/summary.h"
#include "runtime/limit/voice.h"
#include "runtime/plan_follower.h"
#include "runtime/planner.h"
#include "runtime/profiling/counting.h"
#include "runtime/profiling/recording.h"
#include "runtime/profiling/step_profile.h"
#include "runtime/replay/remaking.h"
#include "runtime/step/device_lane.h"
#include "runtime/step/space.h"
#include "runtime/step_log.h"
#include "runtime/step_phases.h"

namespace sentinel {

class Training {
 public:
  // All but the framework's name outlive it. No driver: the fast tier is no GPU's memory.
  Training(const SessionOptions&, std::string framework, OpOrder, Engine&, gpu::Driver*,
           const Voice&);

  Space& space() { return space_; }
  FastLimit& limit() { return limit_; }
  DeviceLane& lane() { return lane_; }
  Recording& recording() { return recording_; }
  const Recording& recording() const { return recording_; }
  Counting& counting() { return counting_; }
  StepProfile& profile() { return profile_; }
  PlanFollower& follower() { return follower_; }
  StepPhases& phases() { return phases_; }
  StepLog& log() { return log_; }
  std::uint64_t begun() const { return begun_; }  // steps, as far as threads are concerned

  void begin(gpu::Driver*, const Remaking&);  // the first step
  // By a broker, before the first tensor: waits without the lock.
  void await_admission(std::unique_lock<std::mutex>& guard) noexcept;
  void end_step();  // and the next begins
  // On request of the program, in the place of the automatic choice of a step. Negative errno.
  int start_profile();
  int end_profile();
  // The program does what is not supported: everything comes back, and nothing moves any more.
  void give_up(const std::string& why);
  // The program has ended. What was recorded of an unfinished profile is kept.
  void finish(const char* reason);

 private:
  using State = StepPhases::State;

  void begin_step();
  void end_warmup_step();
  void end_profile_step();
  void end_steady_step();
  void start_from_files();
  void forget_files(bool alike);
  void count_step();
  void plan_another();
  bool may_rest() const;
  void outgrow(const std::vector<std::uint64_t>& bytes);
  bool measure();
  void plan_again(Bucket&);
  void plan_after_drift();
  void plan_within_grant(FastLimit::Regrant);
  bool compares_plans();
  void exchange_plans();
  bool manages() const { return phases_.paged() || !follower_.kinds().empty(); }
  void adopt(Profile);  // plans, and goes on under the plan
  Bucket& adopt_plan(Profile, Plan);
  void tell_no_replays();
  std::size_t number_of(const Bucket&) const;  // among the kinds of step
  std::vector<ReplayRow> rows_of(std::size_t plan) const;
  void list_replays();

  const SessionOptions& options_;
  Engine& engine_;
  const Voice& voice_;
  Space space_;
  Summary summary_;
  FastLimit limit_;
  DeviceLane lane_;
  Recording recording_;
  Counting counting_;
  StepProfile profile_;
  Planner planner_;
  PlanFollower follower_;
  StepPhases phases_;
  StepLog log_;
  std::uint64_t begun_ = 0;
};

}  // namespace sentinel
