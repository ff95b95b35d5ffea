// What the jobs of a simulation share: the links, fast memory, the slower tiers' space, the clock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "sentinel/machine.h"
#include "sim/fabric.h"
#include "sim/simulator.h"

namespace sentinel::sim {

class Commons {
 public:
  Commons(const Machine&, const SimOptions&);

  const Machine& machine() const { return machine_; }
  double now_us() const { return fabric_.now_us(); }

  // Fast memory. take() is refused where it would exceed the budget.
  bool room(std::uint64_t bytes) const { return held_ + bytes <= capacity_; }
  bool take(std::uint64_t bytes);
  void give(std::uint64_t bytes);
  std::uint64_t held() const { return held_; }
  std::uint64_t peak() const { return peak_; }

  // The tier from `tier` on that has room for so much; the last one if none has. Space in slower
  // tiers is taken and given with it.
  std::uint32_t tier_with_room(std::uint32_t tier, std::uint64_t bytes) const;
  void store(std::uint32_t tier, std::uint64_t bytes) { stored_[tier] += bytes; }
  void unstore(std::uint32_t tier, std::uint64_t bytes) { stored_[tier] -= bytes; }

  // Transfers. `done` is called from advance() when the last byte has arrived, unless forgotten.
  TransferId start(std::uint32_t from, std::uint32_t to, std::uint64_t bytes, double delay_us,
                   TensorId, std::function<void()> done);
  void forget(TransferId id) { flying_[id].done = nullptr; }
  bool idle() const { return fabric_.idle(); }
  double next_event_us() const { return fabric_.next_event_us(); }
  void advance_to(double us);  // not past next_event_us()

  void count(std::uint32_t from, std::uint32_t to, std::uint64_t bytes);
  std::vector<Traffic> traffic() const;
  void restart_traffic();  // a step begins

  Timeline timeline;                         // filled if asked for, times absolute
  Timeline timeline_since(double us) const;  // times relative to `us`, none negative

 private:
  struct Flight {
    std::function<void()> done;
    Timeline::Transfer transfer;
  };
  void sample();

  const Machine& machine_;
  std::uint64_t capacity_, held_ = 0, peak_ = 0;
  bool timed_;
  Fabric fabric_;
  std::vector<std::uint64_t> stored_;  // per tier
  std::map<TransferId, Flight> flying_;
  std::vector<std::uint64_t> moved_;  // from * tiers + to
};

}  // namespace sentinel::sim
