// Tells a person that a plan is still being made: after 2 s, then every 10 s. A plan that is made
// sooner is not mentioned.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"

namespace sentinel {

class PlanningProgress {
 public:
  struct Pace {
    std::chrono::milliseconds first{2000}, next{10'000};
  };
  // `say` is called from a thread of this object's own, never after its end. `subject` is a part of
  // each line: "66674 ops and 100009 tensors".
  PlanningProgress(std::function<void(const std::string&)> say, std::string subject, Pace);
  ~PlanningProgress();
  PlanningProgress(const PlanningProgress&) = delete;
  PlanningProgress& operator=(const PlanningProgress&) = delete;

 private:
  void tell(Pace);

  const std::function<void(const std::string&)> say_;
  const std::string subject_;
  const Clock::time_point begin_ = Clock::now();
  std::mutex lock_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace sentinel
