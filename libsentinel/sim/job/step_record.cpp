// Adds up a step's times by cause, and takes them as its result.
#include "sim/job/step_record.h"

#include <algorithm>
#include <utility>

namespace sentinel::sim {

void StepRecord::begin_step(double now_us, double ideal_us) {
  const std::uint64_t peak = result_.peak_fast_bytes;
  auto times = std::move(result_.step_times_us);
  result_ = SimResult{.ideal_us = ideal_us, .peak_fast_bytes = peak};
  result_.step_times_us = std::move(times);
  computed_us_.clear();
  step_begin_us_ = now_us;
}

void StepRecord::end_step(double now_us, std::uint64_t peak_fast_bytes) {
  end_us_ = now_us;
  // The clock knows a short step after a long one only roughly.
  result_.step_us = std::max(end_us_ - step_begin_us_, result_.ideal_us);
  result_.stall_us = result_.step_us - result_.ideal_us - result_.recompute_us - result_.shared_us;
  result_.peak_fast_bytes = peak_fast_bytes;
  result_.step_times_us.push_back(result_.step_us);
}

void StepRecord::begin_op(double now_us) {
  op_begin_us_ = now_us;
  replayed_us_ = shared_us_ = 0;
}

void StepRecord::add_op(const Computation& computation, double now_us) {
  shared_us_ += computation.shared_us(now_us);
  computed_us_.push_back(computation.took_us(now_us));
}

void StepRecord::add_replay(const Computation& computation, double now_us, double profiled_us) {
  shared_us_ += computation.shared_us(now_us);
  result_.recompute_us += profiled_us;
  replayed_us_ += profiled_us;
}

double StepRecord::end_op(double now_us, double alone_us) {
  const double late = now_us - op_begin_us_ - alone_us - replayed_us_ - shared_us_;
  result_.shared_us += shared_us_;
  result_.op_stall_us.push_back(late);
  return late;
}

void StepRecord::finish(std::vector<Traffic> traffic, Timeline timeline) {
  result_.traffic = std::move(traffic);
  result_.timeline = std::move(timeline);
}

SimResult StepRecord::take() { return std::move(result_); }

}  // namespace sentinel::sim
