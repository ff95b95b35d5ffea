// What `run --summary` writes (DESIGN 10, contract), and the table that a run ends with.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "execute/engine.h"
#include "sentinel/plan.h"

namespace sentinel {

struct StepRow {
  std::uint32_t step = 0;
  double ms = 0;
  std::string phase;  // warmup, profile, trial, steady
  std::uint64_t demand_faults = 0, promoted_bytes = 0, demoted_bytes = 0;
  double stall_ms = 0;
};

struct Summary {
  std::string policy;
  std::uint64_t fast_limit_bytes = 0, peak_fast_bytes = 0, peak_unlimited_bytes = 0;
  std::uint64_t streamed_ops = 0;
  std::uint64_t plans =
      0;  // kinds of step that have one; the figures above are the largest of them
  double predicted_us = 0;
  std::vector<StepRow> steps;

  // A kind of step has got its plan / they were of another model, and none counts.
  void planned(std::uint64_t peak_live_bytes, const Plan&);
  void forget_plans();
  // The step that ends now, against the counters at its start.
  void step_ended(const char* phase, const EngineCounters& now);
  // Milliseconds, median over the steady steps; 0 where there are none.
  double steady_ms() const;
  void write(const std::string& path) const;  // throws Error; readable by its owner only

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  EngineCounters before_;
};

}  // namespace sentinel
