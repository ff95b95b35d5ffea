// A session: what Sentinel does in one training process, from the first tensor to the last.
//
// The adaptor reports ops, layers, tensors and steps, from any thread. The session is the facade
// that owns the lock: it knows which thread's op is whose, and hands what happens to the training's
// objects (training.h). See docs/design/life-of-a-step.md.
//
// Thread-safe. One thread trains: the one that attached, or last ended a step. Where ops come in
// any order, so does each thread that runs one, as long as it does. What other threads allocate is
// held within the budget, but neither recorded nor planned. One lock, `lock_`, guards all state but
// what is a thread's own; it is taken before the engine's, and never while waiting for a tensor (a
// birth on a GPU that is full waits for what is on its way out).
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "capture/recorder.h"
#include "engine/engine.h"
#include "engine/gpu/cuda_driver.h"
#include "options/options.h"
#include "runtime/limit/voice.h"
#include "runtime/op_replays.h"
#include "runtime/other_devices.h"
#include "runtime/training.h"

namespace sentinel {

class Session {
 public:
  // Throws Error where the options cannot be met. `replayer`: the adaptor's, if it can replay ops.
  Session(SessionOptions options, std::string framework, OpOrder order,
          const sentinel_replayer* replayer = nullptr);

  void* allocate(std::size_t bytes) noexcept;  // null: why_full() says it
  std::string why_full(std::size_t bytes);
  int gpu() const { return options_.gpu.device.value_or(-1); }
  MemoryFigures memory(bool reset = false);  // the most alive is what is now, from then on
  bool owns(const void* address) const { return engine_->contains(address); }
  void release(void* address) noexcept;
  OtherDevices& others() { return others_; }
  OpReplays& replays() { return replays_; }

  bool wants_tensors() const {
    return wants_ops() && (training_.recording().wants_tensors() || !engine_->guarded() ||
                           replays_.remaking().follows());
  }
  // False: ops need not be told (profiling/stillness.h). Becomes true at any time.
  bool wants_ops() const { return training_.recording().stillness().wants_ops(); }
  // An op that is not told begins or has ended. False: it may not begin so, for what it uses may be
  // about to leave.
  bool untold(bool begins) noexcept {
    return training_.recording().stillness().untold(begins, lock_);
  }
  void layer(const char* name, Phase) noexcept;
  void layer_end() noexcept;  // sentinel_add_layer(): the program marks layers itself
  void op_start(const char* name, Phase, const char* layer) noexcept;
  void op_tensor(const void* storage, std::size_t bytes, int access) noexcept;
  void op_run() noexcept;
  void compute_on(void* stream) noexcept;
  void forget_stream(void* stream) noexcept;
  void used_on(const void* storage, void* stream) noexcept;
  bool pin(const void* storage) noexcept;   // whether it was not before
  std::uint64_t device_budget();            // as far as it is known now
  bool device_has_room(std::size_t bytes);  // beside all tensors, whatever the budget
  void op_end() noexcept;
  void step_end() noexcept;
  bool step_found() noexcept;  // false: steps are marked, and this is none

  // On request of the program, in the place of the automatic choice of a step.
  int start_profile();
  int end_profile();

  void model(const char* name, std::size_t batch) noexcept;
  void unsupported(const char* what) noexcept;
  void finish(const char* reason) noexcept;
  // Before its libraries' exit handlers: afterwards nobody is in a call of theirs.
  void program_ends() noexcept;

  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  void after_fork_in_child() noexcept;

 private:
  using Guard = std::unique_lock<std::mutex>;
  using State = StepPhases::State;

  // What the calling thread does. In a step and bucket that are over, it is before the first op.
  struct Worker {
    bool trains = false;  // it attached, or last ended a step
    bool in_op = false;
    bool late = false;       // its op is of a step that is over
    bool runs = false;       // its op has been told that it runs
    bool still = false;      // its op began while nothing was wanted of ops
    std::uint64_t step = 0;  // the training's when the op began
    DeviceLane::Op lane;
    PlanFollower::Op plan;
    StepRecorder::Op op = StepRecorder::kPreludeOp;
  };

  // session.cpp
  static Worker& this_thread();
  static bool trains(const Worker& worker) {
    return (worker.in_op || worker.trains) && !Remaking::replays_here();
  }
  void before_first_op(Worker&);
  void end_step();
  void trains_unmanaged() noexcept;
  Worker& here();

  // session_ops.cpp
  void need(Worker&, LiveTensor*, const void* storage, std::size_t bytes);
  void overwrite(LiveTensor&);
  void complete(Worker&);

  // session_memory.cpp
  bool may_follow();

  SessionOptions options_;
  const Voice voice_;
  const std::shared_ptr<gpu::Driver> driver_;  // of a GPU that is the fast tier
  const OpOrder order_;
  const std::unique_ptr<Engine> engine_;
  OtherDevices others_;

  std::mutex lock_;  // guards all below
  Training training_;
  bool in_child_ = false, finished_ = false;
  bool tells_of_child_ = true;  // at its first step
  bool marks_steps_ = false;    // the program, or its optimizer
  OpReplays replays_;
  MoveTimer timer_;  // ends first
};

}  // namespace sentinel
