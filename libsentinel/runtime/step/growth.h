// When a kind of step that has outgrown its plan is planned anew: at once the first times, and then
// after one step, two, four, and so on. A training whose steps keep growing does not plan in each.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sentinel {

class Growth {
 public:
  void step_over() { ++steps_; }
  bool due() const { return steps_ >= wait_; }
  void planned() {
    if (++plans_ >= kAtOnce) wait_ = std::max<std::uint64_t>(1, 2 * wait_);
    steps_ = 0;
  }

 private:
  static constexpr std::uint32_t kAtOnce = 4;

  std::uint32_t plans_ = 0;             // that have replaced one
  std::uint64_t steps_ = 0, wait_ = 0;  // since the last one
};

}  // namespace sentinel
