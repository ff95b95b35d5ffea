// The record of the step under way, and the result that it becomes: time by its cause, and counts.
// It takes times and moves nothing.
//
// A step is its ideal, replays, waits for others' compute, and stalls: the rest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/fluid/simulation.h"
#include "sim/job/computation.h"

namespace sentinel::sim {

class StepRecord {
 public:
  void begin_step(double now_us, double ideal_us);
  void end_step(double now_us, std::uint64_t peak_fast_bytes);
  double begin_us() const { return step_begin_us_; }
  double end_us() const { return end_us_; }  // of the last step that ended

  void begin_op(double now_us);
  // A task of the op has computed.
  void add_op(const Computation&, double now_us);
  void add_replay(const Computation&, double now_us, double profiled_us);
  // `alone_us`: what the op takes alone on the machine. Gives how long the op waited.
  double end_op(double now_us, double alone_us);
  double op_begin_us() const { return op_begin_us_; }
  std::span<const double> computed_us() const { return computed_us_; }

  void count_faults(std::uint64_t batches) { result_.demand_faults += batches; }
  void count_eviction() { ++result_.evictions; }
  void count_streamed() { ++result_.streamed_ops; }

  // Once the last step has ended.
  void finish(std::vector<Traffic>, Timeline);
  SimResult take();

 private:
  double step_begin_us_ = 0, op_begin_us_ = 0, end_us_ = 0;
  double replayed_us_ = 0, shared_us_ = 0;  // of the current op
  std::vector<double> computed_us_;         // per op of the step: compute, as shared
  SimResult result_;
};

}  // namespace sentinel::sim
