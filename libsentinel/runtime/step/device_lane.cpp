// Tells the engine of launches, and pins tensors that no op has named.
#include "runtime/step/device_lane.h"

#include <utility>

namespace sentinel {

// On a GPU the clock protects what the op uses that launches next. An op is one from the first
// tensor of the device's on that it names or makes: what autograd computes on the processor at the
// same time, in the thread that waits for the device's, leaves that op's tensors protected. So does
// an op of the device's own while another is about to launch: autograd has a thread for each
// device, and what copies between two names tensors of both.
void DeviceLane::first_use(Op& op) {
  op.computes = true;
  if (computing_++ > 0) return;
  engine_.tick();
  engine_.launching(true);
}

void DeviceLane::computed() {
  if (--computing_ == 0) engine_.launching(false);
}

void DeviceLane::hold(LiveTensor& tensor) {
  tensor.held = true;
  device_->pin(tensor.address, tensor.bytes);
}

void DeviceLane::let_go(LiveTensor& tensor) {
  if (tensor.pinned) return;
  if (std::exchange(tensor.held, false)) device_->unpin(tensor.address, tensor.bytes);
}

void DeviceLane::pin(LiveTensor& tensor) {
  if (!tensor.held) hold(tensor);
  tensor.pinned = true;
  pinned_bytes_ += tensor.bytes;
}

void DeviceLane::freed(LiveTensor& tensor) {
  if (std::exchange(tensor.pinned, false)) pinned_bytes_ -= tensor.bytes;
  let_go(tensor);
}

}  // namespace sentinel
