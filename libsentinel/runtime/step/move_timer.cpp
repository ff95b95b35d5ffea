// Waits until the next time, or until it is another.
#include "runtime/step/move_timer.h"

#include <chrono>
#include <utility>

#include "base/quiet_thread.h"
#include "runtime/step/trial.h"

namespace sentinel {

MoveTimer::~MoveTimer() {
  {
    const std::lock_guard guard(lock_);
    over_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void MoveTimer::at(double due_us) {
  const std::lock_guard guard(lock_);
  if (due_us == due_us_) return;
  due_us_ = due_us;
  if (!thread_.joinable())
    thread_ = quiet_thread([this] { wait(); });
  else
    changed_.notify_one();
}

void MoveTimer::wait() {
  std::unique_lock guard(lock_);
  while (!over_) {
    const double left_us = due_us_ - now_us();
    if (due_us_ == PutOffMoves::kNever) {
      changed_.wait(guard);
    } else if (left_us > 0) {
      changed_.wait_for(guard, std::chrono::duration<double, std::micro>(left_us));
    } else {
      due_us_ = PutOffMoves::kNever;
      guard.unlock();
      rings_();
      guard.lock();
    }
  }
}

}  // namespace sentinel
