// Two plans for one kind of step. By the simulator the first is better; which one is, steps tell:
// each plan is followed for some, and the one whose steps are shorter stays. The first step of each
// is not compared, for it has the other's tensors, and tries what ops give twice.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "sentinel/plan.h"

namespace sentinel {

class Rivalry {
 public:
  static constexpr std::size_t kSteps = 4;  // of each plan

  // Beside the plan that is followed from now on.
  void begin(Plan other) {
    *this = {};
    other_ = std::move(other);
  }
  void call_off() { other_.reset(); }
  bool open() const { return other_.has_value(); }
  const Plan& other() const { return *other_; }  // where it is open

  // A step of the followed plan has ended. Whether the other one is to be followed now.
  bool step_over(double ms) {
    if (!open() || std::exchange(is_first_, false)) return false;
    auto& steps = ms_[turn_];
    steps.push_back(ms);
    if (steps.size() < kSteps) return false;
    is_first_ = true;
    if (turn_ == 0) {
      turn_ = 1;
      return true;
    }
    const bool back = median(0) <= median(1);
    if (!back) call_off();
    return back;
  }
  // A step of other sizes, which the first plan fits less well and nothing can compare. Whether the
  // other one is to be followed now, for good.
  bool give_way() {
    const bool changes = open() && turn_ == 0;
    given_way_ = changes;
    if (!changes) call_off();
    return changes;
  }
  // The plan to follow, in the place of this one.
  Plan exchange(Plan followed) {
    auto next = std::exchange(*other_, std::move(followed));
    if (decided() || given_way_) call_off();
    return next;
  }
  bool decided() const { return ms_[1].size() == kSteps; }
  // Of the steps under the first plan, or the other; 0 where there were none.
  double median(std::size_t plan) const {
    auto ms = ms_[plan];
    if (ms.empty()) return 0;
    const auto middle = ms.begin() + static_cast<std::ptrdiff_t>(ms.size() / 2);
    std::ranges::nth_element(ms, middle);
    return *middle;
  }

 private:
  std::optional<Plan> other_;
  std::array<std::vector<double>, 2> ms_;
  std::size_t turn_ = 0;
  bool is_first_ = true;
  bool given_way_ = false;
};

}  // namespace sentinel
