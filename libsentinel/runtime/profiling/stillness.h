// Whether ops have to be told. They have not while nothing is away, nothing can leave, and nothing
// is learned of the step. A step's border is where that begins; it ends at any time.
//
// On a GPU the engine is asked to keep everything. On the processor the guard serves every access,
// so no op depends on it: ops are told again when tensors come near the limit.
//
// Guarded by the session's lock but for what is said to take none.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "engine/engine.h"

namespace sentinel {

class Stillness {
 public:
  explicit Stillness(Engine& engine) : device_(engine.device()) {}

  // False: ops need not be told. Becomes true at any time, as soon as memory is getting short.
  // Takes no lock.
  bool wants_ops() const { return !still_.load(std::memory_order_relaxed); }
  // An op that is not told begins or has ended. False: it may not begin so, for what it uses may be
  // about to leave. Takes `lock`, the session's, only where that is in doubt.
  bool untold(bool begins, std::mutex& lock) noexcept;
  // At a step's border: from here on ops need not be told, if all is here and stays so. `settled`:
  // nothing moves by a plan, and nobody wants to know of the step.
  void rest(bool settled);
  void stir() { still_ = false; }  // what begins next is told
  // An op that is told begins: what was kept may leave.
  void op_is_told() {
    if (keeps_all_) keep_all_no_more();
  }
  // A tensor was made, so that `live` bytes of `limit` are used (0: there is none).
  void made_one(std::uint64_t live, std::uint64_t limit) {
    if (keeps_all_ && (device_ != nullptr ? device_->is_short() : !has_room(live, limit))) stir();
  }
  bool step_was_untold() const { return untold_; }  // or a part of it

  // On the processor: an eighth of the limit is for what a step may want before ops are told again.
  static constexpr bool has_room(std::uint64_t live, std::uint64_t limit) {
    return limit == 0 || live <= limit - limit / 8;
  }

 private:
  void keep_all_no_more();

  DeviceMemory* const device_;  // or null
  // Nothing is away and nothing leaves. It ends at once, but a device's engine lets nothing go
  // before an op begins beside which none runs that was not told.
  std::atomic<bool> still_ = false;
  std::atomic<int> untold_ops_ = 0;
  std::atomic<bool> keeps_all_ = false;
  bool untold_ = false;
};

}  // namespace sentinel
