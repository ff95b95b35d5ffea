// Whether a kind of step takes other times by now than its plan was made with. Times are averaged
// and compared by TENSILE's rule (plan/step/op_times.h). A step is measured after 16 others, and
// after twice as many each time that this led to a new plan: planning takes time.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "plan/step/op_times.h"
#include "sentinel/profile.h"

namespace sentinel {

class Drift {
 public:
  explicit Drift(const Profile& profile) : times_(times_of(profile)) {}

  // The step that runs is to be measured.
  bool measures() const { return steps_ == 0; }
  // A step has ended: whether to measure the next one.
  bool step_over() {
    if (++steps_ < wait_) return false;
    steps_ = 0;
    return true;
  }
  // A step's times, per op: whether they have drifted.
  bool measured(std::span<const double> op_us) {
    times_.measured(op_us);
    return times_.drifted();
  }
  bool wants_plan() const { return times_.drifted(); }
  void tell(Profile& profile) const {
    for (std::size_t op = 0; op < profile.ops.size() && op < times_.us().size(); ++op)
      profile.ops[op].us = times_.us()[op];
  }
  // With these times.
  void plan_made() {
    if (times_.drifted() && wait_ < kLongest) wait_ *= 2;
    times_.plan_made();
  }

 private:
  static constexpr std::uint64_t kLongest = 1 << 20;

  static std::vector<double> times_of(const Profile& profile) {
    std::vector<double> us;
    for (const auto& op : profile.ops) us.push_back(op.us);
    return us;
  }

  plan::AveragedTimes times_;
  std::uint64_t steps_ = 0, wait_ = 16;
};

}  // namespace sentinel
