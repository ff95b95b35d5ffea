// The part of a session that only a GPU needs: which op launches next, whether ops have to be told
// at all, and which tensors may not leave. Without one (the engine guards its memory) all of it is
// free of effect.
//
// Guarded by the session's lock but for what is said to take none.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include "alloc/address_table.h"
#include "engine/engine.h"

namespace sentinel {

class DeviceLane {
 public:
  explicit DeviceLane(Engine& engine) : engine_(engine), device_(engine.device()) {}

  // Of one thread's op.
  struct Op {
    bool unused = false;    // it has neither named nor made a tensor of the GPU's
    bool computes = false;  // it has: what it uses is protected
  };
  void begin(Op& op) {
    end(op);
    op.unused = device_ != nullptr;
  }
  // It names or makes a tensor of the GPU's.
  void use(Op& op) {
    if (std::exchange(op.unused, false)) first_use(op);
  }
  void end(Op& op) {
    op.unused = false;
    if (std::exchange(op.computes, false)) computed();
  }

  // False: nothing is away, nothing leaves, and nothing is learned of the step, so that ops need
  // not be told. Becomes true at any time, as soon as memory is getting short. Takes no lock.
  bool wants_ops() const { return !still_.load(std::memory_order_relaxed); }
  // An op that is not told begins or has ended. False: it may not begin so, for what it uses may be
  // about to leave. Takes `lock`, the session's, only where that is in doubt.
  bool untold(bool begins, std::mutex& lock) noexcept;
  // At a step's border: from here on ops need not be told, if all is here and stays so. `settled`:
  // the step is of a known kind, whose plan moves nothing, and nobody wants to know of it.
  void rest(bool settled);
  void stir() { still_ = false; }  // what is launched next is told
  // An op that is told begins: what was kept may leave.
  void op_is_told() {
    if (keeps_all_) keep_all_no_more();
  }
  // A tensor was made.
  void made_one() {
    if (keeps_all_ && device_->is_short()) stir();
  }
  bool step_was_untold() const { return untold_; }  // or a part of it

  // Until an op names it, a tensor stays. What none ever does (a library's workspace) is used by
  // kernels all the same.
  void hold(LiveTensor&);
  void let_go(LiveTensor&);
  void pin(LiveTensor&);
  void freed(LiveTensor&);
  std::uint64_t pinned_bytes() const { return pinned_bytes_; }

 private:
  void first_use(Op&);
  void computed();
  void keep_all_no_more();

  Engine& engine_;
  DeviceMemory* const device_;   // or null
  std::uint32_t computing_ = 0;  // ops that use the GPU's tensors now
  // Nothing is away and nothing leaves. It ends at once, but the engine lets nothing go before an
  // op begins beside which none runs that was not told.
  std::atomic<bool> still_ = false;
  std::atomic<int> untold_ops_ = 0;
  std::atomic<bool> keeps_all_ = false;  // the engine
  bool untold_ = false;
  std::uint64_t pinned_bytes_ = 0;
};

}  // namespace sentinel
