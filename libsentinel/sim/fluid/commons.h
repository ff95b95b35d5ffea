// What the jobs of a simulation share: the links, fast memory, the slower tiers' space, the clock;
// and each job's account of what it uses of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "sentinel/machine.h"
#include "sim/fluid/fabric.h"
#include "sim/fluid/simulation.h"

namespace sentinel::sim {

// One job's part. Lives as long as the Commons: transfers outlive their job.
struct Account {
  std::uint64_t held = 0, peak = 0;  // fast memory; the peak is over all steps
  // Room that the job's next op still lacks; no promotion of any job takes it.
  std::uint64_t claim = 0;
  std::uint64_t leaving = 0;         // of what is held: it leaves, or is to
  std::uint32_t flying = 0;          // transfers that have not ended
  std::vector<std::uint64_t> moved;  // since its step began: from * tiers + to
  Timeline timeline;                 // of that step, if asked for; transfers' times absolute
};

// With times relative to `us`, none negative.
Timeline since(double us, Timeline);

class Commons {
 public:
  Commons(const Machine&, const SimOptions&);

  const Machine& machine() const { return machine_; }
  double now_us() const { return fabric_.now_us(); }
  Account& open_account();

  // Fast memory. take() is refused where it would exceed the budget.
  bool room(std::uint64_t bytes) const { return held_ + bytes <= capacity_; }
  // Room beside what ops that wait have claimed.
  bool room_unclaimed(std::uint64_t bytes) const { return room(bytes + claimed_); }
  bool take(Account&, std::uint64_t bytes);
  std::uint64_t capacity() const { return capacity_; }
  std::uint64_t free_bytes() const { return capacity_ - held_; }
  void give(Account&, std::uint64_t bytes);
  void claim(Account&, std::uint64_t bytes);
  std::uint64_t peak() const { return peak_; }
  std::uint64_t times_given() const { return times_given_; }

  // The tier from `tier` on that has room for so much; throws Error if none has. Space in slower
  // tiers is taken and given with it.
  std::uint32_t tier_with_room(std::uint32_t tier, std::uint64_t bytes) const;
  bool room_in(std::uint32_t tier, std::uint64_t bytes) const;
  void store(std::uint32_t tier, std::uint64_t bytes) { stored_[tier] += bytes; }
  void unstore(std::uint32_t tier, std::uint64_t bytes) { stored_[tier] -= bytes; }

  // Transfers. `done` is called from advance() when the last byte has arrived, unless forgotten.
  TransferId start(Account&, std::uint32_t from, std::uint32_t to, std::uint64_t bytes,
                   double delay_us, TensorId, std::function<void()> done);
  void forget(TransferId id) { flying_[id].done = nullptr; }
  bool idle() const { return fabric_.idle(); }
  // How much of the processors' time is left to compute with beside the transfers under way.
  double compute_share() const;
  double next_event_us() const { return fabric_.next_event_us(); }
  void advance_to(double us);  // not past next_event_us()

  void count(Account&, std::uint32_t from, std::uint32_t to, std::uint64_t bytes) const;
  std::vector<Traffic> traffic(const Account&) const;
  void begin_step(Account&) const;  // its traffic and timeline begin anew

 private:
  struct Flight {
    Account* account;
    std::function<void()> done;
    Timeline::Transfer transfer;
  };
  void sample(Account&) const;

  const Machine& machine_;
  std::uint64_t capacity_, held_ = 0, peak_ = 0, claimed_ = 0, times_given_ = 0;
  bool timed_;
  Fabric fabric_;
  std::vector<std::uint64_t> stored_;  // per tier
  std::map<TransferId, Flight> flying_;
  std::vector<std::unique_ptr<Account>> accounts_;
};

}  // namespace sentinel::sim
