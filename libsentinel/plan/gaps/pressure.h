// How full fast memory is over one cyclic step, as planned so far, and when: for planners that
// weigh how long it is too full. Positions are those of plan/step/storage.h: p >= ops is op p - ops
// of the following step; a range [from, to) covers at most one step. Every call takes O(log n).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/schedule/schedule.h"
#include "plan/step/footprint.h"
#include "plan/step/level.h"
#include "plan/step/storage.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

// When ops start and end if nothing ever waits; for positions of any step.
class StepTimes {
 public:
  explicit StepTimes(const Profile&);

  std::uint32_t ops() const { return static_cast<std::uint32_t>(starts_.size()) - 1; }
  double start_us(std::uint32_t position) const;
  double end_us(std::uint32_t position) const { return start_us(position + 1); }
  // The first position that starts at `us` or later; the last one that starts at `us` or earlier.
  std::uint32_t first_from(double us) const;
  std::uint32_t last_until(double us) const;

 private:
  std::vector<double> starts_;  // per op, and the step's end
};

// What everything alive holds at each op if nothing ever leaves, and what each op itself needs.
Demand whole_demand(const Profile&, const std::vector<Storage>&, const Footprint&);
// What a storage frees when it leaves: granules that it shares with another do not count.
std::uint64_t freed_bytes(const Footprint&, const Storage&);

// How full fast memory is, and for how long it is too full.
class Pressure {
 public:
  // An op is *critical* while more than `limit` bytes are held at it. An op that is not critical,
  // or is no longer, never becomes so again, whatever is added.
  Pressure(std::span<const std::uint64_t> held, std::uint64_t limit, const StepTimes&);

  std::uint64_t limit() const { return static_cast<std::uint64_t>(limit_); }
  void hold(std::uint32_t from, std::uint32_t to, std::uint64_t bytes);
  void release(std::uint32_t from, std::uint32_t to, std::uint64_t bytes);
  bool over(std::uint32_t op) const { return held_.at(op) > limit_; }
  bool fits() const { return held_.most(0, held_.ops()) <= limit_; }
  // The earliest position in [from, to] from which on there is room for so much until `to`.
  std::uint32_t room_since(std::uint32_t from, std::uint32_t to, std::uint64_t bytes) const;
  double critical_us(std::uint32_t from, std::uint32_t to) const;  // duration of critical ops

 private:
  void change(std::uint32_t from, std::uint32_t to, std::int64_t bytes);
  void add_us(std::uint32_t op, double us);
  double us_before(std::uint32_t op) const;

  std::int64_t limit_;
  Level held_;
  Level room_;                // of critical ops: bytes held, negated; others: far below
  std::vector<double> us_;    // per op
  std::vector<double> sums_;  // of critical ops' durations: a Fenwick tree
};

}  // namespace sentinel::plan
