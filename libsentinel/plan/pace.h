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
  // `op_stall_us`: how long each op waits (per op, or empty), as the simulator saw it.
  Pace(const Profile&, const Machine&, std::span<const double> op_stall_us);

  struct Write {
    std::uint32_t use = 0;  // leaves at this op's end
    std::uint32_t tier = 1;
    std::uint64_t bytes = 0;
  };
  // For each, the first position that starts when it is written, in the steady state; in the order
  // in which they leave. At most one step after `use`.
  std::vector<std::uint32_t> written(std::span<const Write>) const;

  // The last position in [first, last] that starts early enough for a fetch of so many bytes to be
  // there at the start of `last`, twice over.
  std::uint32_t in_time(std::uint32_t first, std::uint32_t last, std::uint32_t tier,
                        std::uint64_t bytes) const;

 private:
  double start_us(std::uint32_t position) const;

  const Machine& machine_;
  std::uint32_t ops_;
  std::vector<double> start_;  // per op, when it begins to compute; then the step's end
};

}  // namespace sentinel::plan
