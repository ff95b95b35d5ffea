// When a kind of step that has outgrown its plan is planned anew: at once, and then after one step,
// two, four, and so on. A training whose steps keep growing does not plan in each of them.
#pragma once

#include <cstdint>

namespace sentinel {

class Growth {
 public:
  void step_over() { ++steps_; }
  bool due() const { return steps_ >= wait_; }
  void planned() {
    wait_ = wait_ == 0 ? 1 : 2 * wait_;
    steps_ = 0;
  }

 private:
  std::uint64_t steps_ = 0, wait_ = 0;  // since it was planned
};

}  // namespace sentinel
