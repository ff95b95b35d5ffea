// Speaks from a thread that waits until the plan is there.
#include "runtime/limit/planning_progress.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "base/quiet_thread.h"

namespace sentinel {

PlanningProgress::PlanningProgress(std::function<void(const std::string&)> say, std::string subject,
                                   Pace pace)
    : say_(std::move(say)), subject_(std::move(subject)) {
  try {
    thread_ = quiet_thread([this, pace] { tell(pace); });
  } catch (const std::system_error&) {  // a plan matters more than news of it
  }
}

PlanningProgress::~PlanningProgress() {
  {
    const std::lock_guard hold(lock_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PlanningProgress::tell(Pace pace) {
  std::unique_lock hold(lock_);
  auto next = begin_ + pace.first;
  while (!changed_.wait_until(hold, next, [this] { return over_; })) {
    say_(fmt::format("a plan for {} is being made; {:.0f} s so far", subject_,
                     seconds_since(begin_)));
    next += pace.next;
  }
}

}  // namespace sentinel
