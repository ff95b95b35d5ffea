// Exchanges told and untold ops so that none runs untold while a tensor may leave the device.
#include "runtime/profiling/stillness.h"

#include <utility>

namespace sentinel {

void Stillness::rest(bool settled) {
  const bool told =
      still_ || !std::exchange(untold_, false);  // whole steps before, of a known kind
  if (!settled || !told) return stir();
  if (!still_) still_ = keeps_all_ = device_ == nullptr || device_->keep_all(true);
  untold_ = still_;
}

// An untold op counts itself and then asks whether all is kept; this says that it is not and then
// asks for the count. In one order of all four, at least one of the two sees the other.
void Stillness::keep_all_no_more() {
  keeps_all_ = false;
  if (untold_ops_ != 0)
    keeps_all_ = true;
  else if (device_ != nullptr)
    device_->keep_all(false);
}

bool Stillness::untold(bool begins, std::mutex& lock) noexcept {
  if (!begins) {
    --untold_ops_;
    return true;
  }
  ++untold_ops_;
  if (keeps_all_) return true;
  const std::lock_guard guard(lock);  // op_is_told() may be about to find this op
  if (keeps_all_) return true;
  --untold_ops_;
  return false;
}

}  // namespace sentinel
