// The options and the result of a simulation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sentinel/plan.h"
#include "sentinel/policy.h"
#include "sentinel/profile.h"

namespace sentinel::sim {

struct SimOptions {
  std::uint64_t fast_bytes = 0;
  std::uint32_t steps = 3;
  std::span<const Placement> placements = {};  // empty: every tensor on granules of its own
  std::span<const TensorId> absent = {};       // where the first step begins, outside fast memory
  double noise = 0;  // each op takes its time times a number drawn from [1 - noise, 1 + noise]
  std::uint64_t seed = 0;   // of the noise
  bool timeline = false;    // fill SimResult::timeline
  double time_limit_s = 0;  // of policies that learn: beyond `steps`, none begins after it; 0: none
};

// The last step as it went: times in us since its start.
struct Timeline {
  struct Sample {  // fast memory that the job holds from here on
    double at_us;
    std::uint64_t fast_bytes;
    friend bool operator==(const Sample&, const Sample&) = default;
  };
  struct Transfer {
    double begin_us, end_us;
    std::uint32_t from, to;  // tiers
    std::uint64_t bytes;
    TensorId tensor;
    friend bool operator==(const Transfer&, const Transfer&) = default;
  };
  struct Wait {  // an op that waited
    double begin_us, end_us;
    OpId op;
    friend bool operator==(const Wait&, const Wait&) = default;
  };
  struct Use {  // an op, or a replay of one, and what it touched in each kind of tier
    double begin_us, end_us;
    double fast_bytes = 0, slow_bytes = 0;
    friend bool operator==(const Use&, const Use&) = default;
  };
  std::vector<Sample> samples;
  std::vector<Transfer> transfers;
  std::vector<Wait> waits;
  std::vector<Use> uses;
  friend bool operator==(const Timeline&, const Timeline&) = default;
};

struct Traffic {
  std::string from, to;
  std::uint64_t bytes = 0;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

// What policies that are driven by page faults do besides (sim/paging.h), in blocks of 2 MiB.
struct Paging {
  std::uint64_t faulted_blocks = 0;      // absent when a kernel touched them, and not predicted
  std::uint64_t late_blocks = 0;         // predicted, and waited for
  std::uint64_t conflict_misses = 0;     // of those faulted: their kernel's table is too small
  std::uint64_t invalidated_blocks = 0;  // dropped instead of written
  std::uint64_t table_bytes = 0;         // of what the policy has learned
  friend bool operator==(const Paging&, const Paging&) = default;
};

struct SimResult {
  // The ideal is of the same step: with noise, of the times that its ops met.
  double step_us = 0, ideal_us = 0, stall_us = 0, recompute_us = 0;
  // How much longer ops computed because other jobs did, or moving took processors' time.
  double shared_us = 0;
  std::uint64_t peak_fast_bytes = 0;  // over all steps
  std::uint64_t demand_faults = 0;    // batches
  std::uint64_t evictions = 0;        // put out for want of room, not by the controller
  std::uint64_t streamed_ops = 0;
  std::vector<Traffic> traffic;       // of the last step, by tier
  std::vector<double> op_stall_us;    // of the last step
  std::vector<double> step_times_us;  // of every step
  Timeline timeline;
  Paging paging;  // of the last step
  // Without op times nothing relates to anything: no ratio is told.
  bool timed() const { return ideal_us > 0; }
  double normalized_throughput() const { return step_us > 0 ? ideal_us / step_us : 1; }
  friend bool operator==(const SimResult&, const SimResult&) = default;
};

// One of several jobs.
struct Job {
  const Profile* profile = nullptr;
  Controller* controller = nullptr;
  double start_us = 0;
  std::uint32_t steps = 3;
  std::span<const Placement> placements = {};
  std::span<const TensorId> absent = {};
};

}  // namespace sentinel::sim
