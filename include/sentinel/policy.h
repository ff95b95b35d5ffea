// SPDX-License-Identifier: Apache-2.0
// The policy seam: what decides where tensors lie and when they move. Three kinds, by what they
// see:
//
// - a PlannedPolicy sees the whole step beforehand and gives a plan;
// - an OnlinePolicy is told of each op and answers with moves of whole tensors;
// - a PagedPolicy (sentinel/paging.h) sees page faults in blocks of unified memory.
//
// The first two give a Controller; the simulator and the live engine drive the same controllers.
//
// Who calls what: plan() and prepare() are called from one thread and may take seconds (and use
// more threads themselves); they must be pure and deterministic for a seed and an effort. A
// controller's methods are called in the order of execution, never concurrently; they answer at
// once, must not block, allocate from guarded memory, or do I/O.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sentinel/machine.h"
#include "sentinel/plan.h"
#include "sentinel/profile.h"

namespace sentinel {

// What a simulation of a plan says of it; lets a planner try plans without knowing the simulator.
struct Verdict {
  double step_us = 0;
  std::vector<double> op_stall_us;                 // per op
  std::uint64_t demand_faults = 0, evictions = 0;  // of what the plan should have moved itself
  std::uint64_t in_bytes = 0, out_bytes = 0;       // moved into fast memory and out of it
};
using Judge = std::function<Verdict(const Profile&, const Machine&, const Plan&)>;

struct PlanOptions {
  std::uint64_t fast_bytes = 0;           // the budget
  std::uint32_t pool_frames = 8;          // granules of it kept free for transfers (queue depth)
  std::uint32_t threads = 0;              // that compute; 0: as many as the profile's machine had
  std::uint32_t max_interval_layers = 0;  // 0: no limit
  std::uint32_t look_ahead = 0;           // kernels that a pager predicts ahead; 0: its default
  std::uint64_t seed = 0;
  std::uint64_t effort = 0;  // bound of a search, in the policy's own unit; 0: its default
  double time_limit_s = 10;  // only cuts: what was found until then is the answer
  bool recompute = true;     // the plan may replay ops
  Judge judge;               // thread-safe; empty: a planner relies on its own estimate
  bool parts = true;         // the plan may be for tensors in parts (Plan::part_bytes)
  bool copies = true;        // the plan may copy ahead what leaves later (Direction::copy)
  bool in_place = true;      // the plan may use slower tiers in place (Plan::in_place, births)
  std::vector<std::string> without;  // features to leave out: of Policy::features()
};

class Controller {
 public:
  virtual ~Controller() = default;
  // Moves are appended to `out`, in the order in which they are to be issued.
  virtual void op_start(OpId op, std::vector<Move>& out) = 0;
  virtual void op_end(OpId op, std::vector<Move>& out) = 0;
  virtual void first_access(TensorId, std::vector<Move>&) {}
  virtual void fault(TensorId, std::vector<Move>&) {}
  // A step has ended. `op_us`: what each of its ops computed, waits and replays apart, as long as
  // it took among the other jobs. `last`: the job leaves. Said where times are measured.
  virtual void step_end(std::span<const double> /*op_us*/, bool /*last*/) {}
  // Ops to replay before this one starts, in order.
  virtual std::span<const Recompute> replays(OpId) { return {}; }
  // The tier in which a tensor is made; asked only where a slower tier is byte-addressable.
  // `room`: fast memory has room for it now.
  virtual std::uint32_t birth(TensorId, bool /*room*/) { return 0; }
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  // What PlanOptions::without may name.
  virtual std::span<const std::string_view> features() const { return {}; }
  // A yardstick: its plans' fast_bytes are what they use, whatever the budget.
  virtual bool ignores_budget() const { return false; }
};

// Whether the feature is in use. Throws Error where `without` names what the policy does not have.
void check_features(const Policy&, const PlanOptions&);
bool uses(const PlanOptions&, std::string_view feature);

class OnlinePolicy : public Policy {
 public:
  virtual std::unique_ptr<Controller> prepare(const Profile&, const Machine&,
                                              const PlanOptions&) = 0;
};

struct PlannedJob {
  const Profile* profile = nullptr;  // all op times 0: the job has not run yet
  double start_us = 0;               // when it arrives
  // Maximum swap ratio: how much of what all jobs swap may be this one's, as tensors. The
  // smaller, the less it may be slowed down.
  double swap_share = 1;
};

// A policy that knows the whole step beforehand; its controller walks the plan.
class PlannedPolicy : public Policy {
 public:
  // Throws Error when the budget cannot work; the message names the smallest that does.
  virtual Plan plan(const Profile&, const Machine&, const PlanOptions&) = 0;
  // One plan a job, for jobs that share the machine. By default each has a part of the budget in
  // proportion to its peak and is planned alone.
  virtual std::vector<Plan> plan_jobs(std::span<const PlannedJob>, const Machine&,
                                      const PlanOptions&);
  // The controllers of those jobs, in order; `plans` is what plan_jobs() gave for them. By default
  // each walks its plan; a policy that plans anew while jobs come, go and drift does it here. The
  // profiles live as long as the controllers. For one simulation or run.
  virtual std::vector<std::unique_ptr<Controller>> control_jobs(std::span<const PlannedJob>,
                                                                std::vector<Plan> plans,
                                                                const Machine&, const PlanOptions&);
};

std::unique_ptr<Controller> walk(Plan plan);  // the controller of every planned policy

std::unique_ptr<Policy> make_policy(std::string_view name);  // throws Error on an unknown name
std::span<const std::string_view> policy_names();

}  // namespace sentinel
