// What `run --summary` writes (fields are never renamed or removed), and the table that a run ends
// with.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/host/stolen.h"
#include "engine/numa/numa_maps.h"
#include "runtime/limit/watch.h"
#include "runtime/step/trial.h"
#include "sentinel/plan.h"
#include "sentinel/profile.h"

namespace sentinel {

struct StepRow {
  std::uint32_t step = 0;
  double ms = 0;
  std::string phase;  // warmup, profile, trial, steady
  std::uint64_t demand_faults = 0, promoted_bytes = 0, demoted_bytes = 0;
  std::uint64_t unwritten_bytes = 0;  // out of fast memory without a write
  double stall_ms = 0, checksum_ms = 0;
  std::uint64_t limit_bytes = 0;  // at its end; 0: there was none
  std::uint64_t replays = 0, replayed_bytes = 0, discarded_bytes = 0;
  double replay_ms = 0;   // in which ops were run again, all threads together
  Flow reading, writing;  // whole blocks; what pieces read is promoted beside it
  // NUMA tiers: accesses by the profile's count, and of these those to fast memory; bytes by node,
  // where they were looked at.
  double accesses = 0, fast_accesses = 0;
  NodeBytes nodes;
  std::optional<Watch::NodeCounts> openings;  // where they were watched
};

struct TierNames {
  std::string fast, slow;  // "node0", "gpu0"; "node1", "host"
  std::string below = {};  // of a GPU: the directory below the host's memory; else empty
};

struct Drives {                // of the slow tier; blocks are spread evenly
  std::uint64_t rated_tb = 0;  // terabytes (10^12 bytes) that each may be written
  std::uint64_t count = 1;
};

struct Foretold {  // of a step, by the first kind's plan
  double us = 0;
  std::uint64_t promoted_bytes = 0, demoted_bytes = 0;  // of the tensors that the plan names
  std::uint64_t in_bytes = 0, out_bytes = 0;            // as simulated
};

struct ReplayRow {  // what one plan makes again before one op, in each step
  struct NamedOp {
    std::uint32_t op = 0;
    std::string name;
  };
  struct Lost {
    std::uint32_t tensor = 0;
    std::string name;
    std::uint64_t bytes = 0;
    NamedOp maker;
  };
  std::size_t plan = 0;
  bool given_up = false;  // the kind of step went on by a plan without replays
  NamedOp before;
  std::vector<NamedOp> replays;  // in order
  std::vector<Lost> tensors;
  double us = 0, move_us = 0;  // as planned, and as moves
  // Steps in which it was made again there, and what that took in all of them together.
  std::uint64_t times = 0;
  double measured_us = 0;

  double step_us() const { return times > 0 ? measured_us / static_cast<double>(times) : us; }
};

// Ops that were run again once, to see whether they give the same bytes.
struct ReplayTrials {
  std::uint64_t ops = 0;
  std::map<std::string, std::uint64_t> refused;  // how many of a name did not
};

struct Summary {
  std::string policy;
  std::uint64_t fast_limit_bytes = 0, peak_fast_bytes = 0, peak_unlimited_bytes = 0;
  std::uint64_t streamed_ops = 0;
  std::uint64_t plans =
      0;  // kinds of step that have one; the figures above are the largest of them
  Foretold foretold;
  double planning_ms = 0;          // in which profiles were taken and stored, and plans made
  std::optional<TierNames> tiers;  // none: memory over drives
  std::uint64_t granule_bytes = 0;
  Drives drives;
  std::vector<StepRow> steps;
  struct MadeAgain {
    std::vector<ReplayRow> rows;
    ReplayTrials trials;
    std::string none;  // why there are none, where there are none
  } made_again;

  // A kind of step has got its plan / they were of another model, and none counts.
  void planned(const Profile&, const Plan&);
  void forget_plans();
  // The first kind of step has another plan for the same.
  void exchanged(const Profile&, const Plan&);
  // A kind of step has outgrown its plan, which this one replaces.
  void outgrown(const Profile&, const Plan&);
  // The step that ends now, against the counters at its start.
  StepRow& step_ended(const char* phase, const EngineCounters& now);
  // What has been done since then was for a plan, between two steps: it is no step's time.
  void no_step(Clock::time_point since);
  // Milliseconds, median over the steady steps; 0 where there are none.
  double steady_ms() const;
  // The part of the processors' time, from the first steady step's end until now, that the host of
  // a virtual machine took; 0 where there is no such step.
  double stolen() const;
  // Bytes written to the slow tier in a step, median over the steady steps.
  double steady_written_bytes() const;
  // For how long the drives bear steps like these; 0 where nothing is written to one.
  double drive_days() const;
  // What became of the intervals of each plan, in the order of the plans. Throws Error; the file is
  // readable by its owner only.
  void write(const std::string& path, const std::vector<std::vector<IntervalRow>>& intervals) const;

 private:
  struct StepBegin {
    Clock::time_point at = Clock::now();
    EngineCounters counters;
  };
  StepBegin began_;
  ProcessorTicks at_first_steady_;  // zeros: none has ended
};

}  // namespace sentinel
