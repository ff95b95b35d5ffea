// When what leaves fast memory has really left: writes queue on their tier's way out, and while
// they do their space is held. Where links are the limit, a plan that takes each write for done
// after one op fetches too early and makes ops wait for room.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sentinel/machine.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

class Pace {
 public:
  // `op_wait_us`: what passes between the end of one op and the start of the next, stalls and
  // replays (per op, or empty), as the simulator saw it.
  Pace(const Profile&, const Machine&, std::span<const double> op_wait_us);

  double end_us(std::uint32_t position) const;  // of that op; the step begins at 0

  struct Write {
    std::uint32_t use = 0;   // leaves at this op's end
    std::uint32_t lead = 0;  // may be copied so many ops before, while nothing waits that leaves
    std::uint32_t tier = 1;
    std::uint64_t bytes = 0;
  };
  // For each, the first position that starts when it is written, in the steady state. At most one
  // step after `use`.
  std::vector<std::uint32_t> written(std::span<const Write>) const;

  // The last position in [first, last] that is reached early enough for a fetch of so many bytes to
  // be there when `last` is, twice over.
  std::uint32_t in_time(std::uint32_t first, std::uint32_t last, std::uint32_t tier,
                        std::uint64_t bytes) const;

 private:
  std::vector<double> ends(std::span<const Write>, std::uint32_t tier) const;
  double at(const std::vector<double>& times, std::uint32_t position) const;

  const Machine& machine_;
  std::uint32_t ops_;
  // Per op, when it is reached (then it waits), begins to compute, ends; reached_[ops] is the
  // step's end.
  std::vector<double> reached_, start_, end_;
};

}  // namespace sentinel::plan
