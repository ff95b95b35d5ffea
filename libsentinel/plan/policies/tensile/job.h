// One job while TENSILE schedules it: when its ops run, and what has become of its gaps.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/gaps/absence.h"
#include "plan/gaps/channel.h"
#include "plan/policies/tensile/scheduled_job.h"
#include "plan/step/replay.h"
#include "plan/step/stabbing.h"
#include "sentinel/machine.h"
#include "sentinel/plan.h"
#include "sentinel/policy.h"

namespace sentinel::plan::tensile {

class Job {
 public:
  Job(const ScheduledJob&, const Machine&, const PlanOptions&, std::uint32_t index);

  const Profile& profile() const { return *job_.profile; }
  double step_us() const { return time_.back(); }
  double start_us() const { return job_.start_us; }
  double swap_share() const { return job_.swap_share; }
  std::uint64_t peak() const { return absences_.peak(); }
  std::uint64_t most_needed() const { return absences_.most_needed(); }
  std::uint64_t swapped() const { return swapped_; }  // tensors

  // The largest tensor that idles where this job holds most, among gaps not tried yet.
  std::optional<std::uint32_t> largest_at_peak();
  std::uint64_t bytes(std::uint32_t gap) const { return absences_.bytes(gap); }

  // Swaps the gap's tensor so that it is away at the peak and nothing waits for it (Algorithm 1),
  // and then, for nothing but the way back, in its other gaps. False: there is no room on the
  // channel; the gap is tried again only once the peak is elsewhere, a few times.
  bool swap(std::uint32_t gap, Channel&);

  // Gives up what is cheapest to make again for what it frees at the peak, of what nothing moves.
  bool recompute();

  // What idles goes and comes back with waiting, until no more than so much is held.
  void give_way(std::uint64_t limit);
  bool fits(std::uint64_t limit) const { return peak() <= limit; }

  // Throws Error where the limit does not hold after all.
  Plan plan(std::uint64_t limit) const;

 private:
  // released: nothing reads it again, so that its space is given up for nothing.
  enum class GapState : std::uint8_t { open, refused, released, swapped, waited, recomputed };
  struct Swap {  // times as of positions
    double out_us = 0, out_end_us = 0, in_us = 0;
  };
  struct Region {  // in which a transfer has to lie
    double from, to;
  };

  double time(std::uint32_t position) const;     // when that op begins
  std::uint32_t position(double at_us) const;    // of the op that runs then
  std::uint32_t last_held(double end_us) const;  // the op that runs right before then
  double rounding_us() const { return 1e-9 * step_us(); }
  bool place(std::uint32_t gap, bool copy, Region out, Region in, Channel&);
  void swap_other_gaps(std::uint32_t gap, Channel&);
  bool dirty(std::uint32_t gap) const;
  std::optional<std::uint32_t> tier_for(std::uint32_t storage) const;
  double transfer_us(std::uint32_t gap, std::uint32_t from, std::uint32_t to) const;
  std::vector<Recompute> chain(std::uint32_t gap) const;
  bool may_recompute(std::uint32_t gap) const;
  void rank_recomputation();
  bool recompute(std::uint32_t gap);
  std::vector<Decision> decisions() const;
  void put_off_writes(Plan&) const;

  const ScheduledJob& job_;
  const Machine& machine_;
  const PlanOptions& options_;
  std::uint32_t index_;
  std::vector<double> time_;
  Absences absences_;
  Stabbing idle_;
  std::vector<GapState> gap_states_;  // per gap
  struct Tries {
    std::uint32_t times = 0, peak_op = UINT32_MAX;  // the last one, for a peak at that op
  };
  std::vector<Tries> tries_;  // per gap
  std::vector<Swap> swaps_;   // per gap
  std::vector<bool>
      touched_;  // per storage: something of it has been given up, or is replayed from
  std::vector<bool> refused_;           // per gap: cannot be recomputed
  std::vector<std::uint32_t> of_;       // per tensor, its storage
  std::vector<std::uint64_t> stored_;   // per tier: bytes of what is swapped there
  std::vector<std::uint32_t> tier_of_;  // per storage, 0: none yet
  std::uint64_t swapped_ = 0;
  bool waits_ = false;
  Replay replay_;
  std::optional<Stabbing> by_value_;  // gaps by MSPS
};

}  // namespace sentinel::plan::tensile
