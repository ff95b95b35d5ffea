// What the session does about replays at each op of a thread that trains: has made again what the
// plan or the op wants, keeps the op's recipe where the plan replays it, and discards at its end.
// Takes the session's lock where it does not say that the caller holds it.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "runtime/replay/remaking.h"
#include "runtime/training.h"

namespace sentinel {

class OpReplays {
 public:
  using Guard = Remaking::Guard;

  // All but the text outlive it.
  OpReplays(Engine&, Training&, std::mutex& lock, OpOrder, const std::string& inject);

  Remaking& remaking() { return remaking_; }
  const Remaking& remaking() const { return remaking_; }

  // Some plan replays ops, or one that was given up still may. Else begin() and run() have nothing
  // to do, and an op pays for a load in each. Takes no lock.
  bool any() const { return training_.follower().has_replays(); }

  // The calling thread's op begins, with the lock held; it is not when this returns.
  void begin(PlanFollower::Op&, const char* name, Guard&);
  // With the lock held. False: whether it is overwritten is none of the replays' business.
  bool names(const LiveTensor&, bool writes, bool overwrites);
  // With the lock held: what lies there is a part of a tensor, or of several.
  void names_part(std::uintptr_t address, std::uint64_t bytes) {
    if (remaking_.follows()) remaking_.names_part(op(), address, bytes);
  }
  // Before it computes. Calls overwrite(LiveTensor&) with the lock held.
  template <class Overwrite>
  void run(Overwrite overwrite) {
    remaking_.op_runs(op(), overwrite);
  }
  void computed() {  // with the lock held
    if (!any()) return;
    if (remaking_.follows()) remaking_.op_computed(op());
    remaking_.op_closes(op());
    look_whether_over();
  }
  void end(PlanFollower::Op&);
  // With the lock held, right after all was made again and the next step has begun.
  void step_ended();

  // Of the adaptor's seam.
  bool wants_recipes() noexcept;  // right from where a planned step begins, before its first op
  bool wants_recipe() noexcept;
  void reached(const void* storage, bool lasting) noexcept;
  std::uint64_t number(const void* storage) noexcept;  // 0: none of ours
  void recipe(void* recipe, Replays::Numbers read, Replays::Numbers written) noexcept;

 private:
  static Remaking::Op& op();  // the calling thread's
  bool plan_replays();        // with the lock held
  void look_whether_over() {  // the same
    if (!remaking_.follows() && !remaking_.is_in_op()) training_.follower().replays_ended();
  }

  Engine& engine_;
  Training& training_;
  std::mutex& lock_;
  Remaking remaking_;
};

}  // namespace sentinel
