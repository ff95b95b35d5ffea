// Migration intervals: Sentinel paper, section IV-D, Equations 1 and 2.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/step/storage.h"
#include "sentinel/plan.h"

namespace sentinel::plan {

// A step cut into intervals of `layers` layers each; the last one may be shorter.
class Intervals {
 public:
  Intervals(const Profile&, std::uint32_t layers);
  static Intervals each_op(const Profile&);  // every op an interval of its own; layers() is 0
  std::uint32_t layers() const { return layers_; }
  std::size_t size() const { return first_op_.size(); }
  std::uint32_t of(std::uint32_t op) const { return of_op_[op]; }
  std::uint32_t first_op(std::size_t interval) const { return first_op_[interval]; }

 private:
  Intervals() = default;
  std::uint32_t layers_ = 0;
  std::vector<std::uint32_t> of_op_, first_op_;
};

struct IntervalInput {
  const Profile& profile;
  const std::vector<Storage>& storages;
  const std::vector<bool>& movable;            // per storage
  const std::vector<std::uint64_t>& reserved;  // per op: granules of what never moves
  std::uint64_t fast_bytes = 0;
  double rate = 0;  // slow to fast, bytes per us
};

// Equation 1 (space) as IntervalPoint::fits, Equation 2 (goal) as exposed_us. Tensor(MIL) of an
// interval is what it needs and its predecessor does not; it is moved while the predecessor runs,
// so the time exposed is the sum over intervals of what exceeds the predecessor's time. The paper
// writes (S - RS)/BW for the time of that move, the time to fill all of the free space; the bytes
// that really move are known here and used instead.
IntervalPoint interval_point(const IntervalInput&, std::uint32_t layers);

// Every length up to 64 layers, then in steps of an eighth; at most half of the step.
std::vector<IntervalPoint> interval_curve(const IntervalInput&, std::uint32_t max_layers);

// The length of least exposed time among those that fit, the shorter on a tie; 1 if none fits.
std::uint32_t best_interval(const std::vector<IntervalPoint>&);

}  // namespace sentinel::plan
