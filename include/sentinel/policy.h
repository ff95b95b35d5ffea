// The policy seam. A policy is prepared once per (profile, machine, options) and gives a
// controller; the simulator and the live engine drive the same controllers.
//
// Who calls what: prepare() is called from one thread and may take seconds; it must be pure and
// deterministic for a seed. A controller's methods are called in the order of execution, never
// concurrently; they answer at once, must not block, allocate from guarded memory, or do I/O.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sentinel/machine.h"
#include "sentinel/plan.h"
#include "sentinel/profile.h"

namespace sentinel {

struct PlanOptions {
  std::uint64_t fast_bytes = 0;           // the budget
  std::uint32_t pool_frames = 8;          // granules of it kept free for transfers (queue depth)
  std::uint32_t threads = 0;              // that compute; 0: as many as the profile's machine had
  std::uint32_t max_interval_layers = 0;  // 0: no limit
  std::uint64_t seed = 0;
  double time_limit_s = 10;
  std::vector<std::string> without;  // features to leave out
};

class Controller {
 public:
  virtual ~Controller() = default;
  // Moves are appended to `out`, in the order in which they are to be issued.
  virtual void op_start(OpId op, std::vector<Move>& out) = 0;
  virtual void op_end(OpId op, std::vector<Move>& out) = 0;
  virtual void first_access(TensorId, std::vector<Move>&) {}
  virtual void fault(TensorId, std::vector<Move>&) {}
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  virtual std::unique_ptr<Controller> prepare(const Profile&, const Machine&,
                                              const PlanOptions&) = 0;
};

// A policy that knows the whole step beforehand; its controller walks the plan.
class PlannedPolicy : public Policy {
 public:
  // Throws Error when the budget cannot work; the message names the smallest that does.
  virtual Plan plan(const Profile&, const Machine&, const PlanOptions&) = 0;
  std::unique_ptr<Controller> prepare(const Profile&, const Machine&, const PlanOptions&) final;
};

std::unique_ptr<Controller> walk(Plan plan);  // the controller of every planned policy

std::unique_ptr<Policy> make_policy(std::string_view name);  // throws Error on an unknown name
std::span<const std::string_view> policy_names();

}  // namespace sentinel
