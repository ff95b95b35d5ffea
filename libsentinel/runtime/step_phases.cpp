// Carries out the transitions of the state machine of steps.
#include "runtime/step_phases.h"

namespace sentinel {

void StepPhases::end_warmup(bool equal) {
  if ((!equal && warmups_ < kMostWarmups) || manual_) return;
  state_ = State::profiling;
  count_next_ = true;
}

bool StepPhases::try_again() {
  constexpr std::uint32_t kMostTries = 3;
  if (manual_ || ++tries_ >= kMostTries) return false;
  count_next_ = true;
  return true;
}

void StepPhases::begin_by_hand() {
  count_next_ = false;
  manual_ = true;
  state_ = State::profiling;
}

bool StepPhases::saw_new_step(std::uint64_t family) {
  constexpr std::uint32_t kWatch = 64;  // steps to go on recording after a new kind
  unknown_steps_ = kWatch;
  return ++new_kinds_[family] >= 2;
}

}  // namespace sentinel
