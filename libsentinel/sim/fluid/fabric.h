// Transfers between tiers as fluid: each has a rate, shared max-min fairly among all transfers that
// cross the same tier port or link, in each direction apart unless the link is half duplex. Rates
// change only when a transfer starts or ends.
#pragma once

#include <cstdint>
#include <vector>

#include "sentinel/machine.h"

namespace sentinel::sim {

using TransferId = std::uint64_t;

class Fabric {
 public:
  explicit Fabric(const Machine&);

  // `delay_us` (latency, fault handling) passes before the first byte flows. Either way the call
  // returns at once; completion is seen through next_completion_us() and advance().
  TransferId start(std::uint32_t from, std::uint32_t to, std::uint64_t bytes, double delay_us);

  bool idle() const { return active_.empty(); }
  double now_us() const { return now_; }
  // Of all transfers together, bytes per microsecond. What takes no time does not count.
  double rate() const;
  // When something completes or begins to flow; infinity when idle.
  double next_event_us() const;
  // Moves time forward, not past next_event_us(); appends what completed, in order of start.
  void advance(double to_us, std::vector<TransferId>& completed);

 private:
  struct Crossing {
    std::uint32_t resource;
    double weight;  // of the resource's bytes, what one of the transfer's takes (plan/step/rates.h)
  };
  struct Active {
    TransferId id;
    std::uint32_t from, to;
    double remaining;   // bytes
    double flows_from;  // time
    double rate = 0;    // bytes per us
    std::vector<Crossing> crosses;
  };

  std::vector<Crossing> path(std::uint32_t from, std::uint32_t to) const;
  void share();

  const Machine* machine_;
  std::vector<double> capacity_;  // per resource, bytes per us
  std::vector<Active> active_;    // by id
  double now_ = 0;
  TransferId next_id_ = 1;
};

}  // namespace sentinel::sim
