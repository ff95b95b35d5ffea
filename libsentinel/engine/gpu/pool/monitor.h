// The engine's one lock, which guards all parts, and how threads wait under it: training threads
// for room, helper threads for work. It also knows the calls that are made without the lock, and
// whether anything comes any more. It knows no block.
//
// Waiting passes through the driver: one of virtual time has to know.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "engine/gpu/pool/block.h"

namespace sentinel::gpu::pool {

using Guard = std::unique_lock<std::mutex>;

class Monitor {
 public:
  explicit Monitor(Driver& driver) : driver_(driver) {}

  Guard hold() const { return Guard(lock_); }
  std::mutex& lock() { return lock_; }  // for the store, and around fork

  // A chunk, a place, or the end of a departure came: all threads that wait for room look again.
  void wake_waiting() { driver_.unpark(freed_); }
  void await_room(Guard& guard) { driver_.park(freed_, guard); }
  // The same in a training thread, counted as a stall. Throws ProcessEnds.
  void wait_for_room(Guard&);
  template <class Done>
  void await_at_most(std::chrono::seconds patience, Guard& guard, Done&& done) {
    freed_.wait_for(guard, patience, std::forward<Done>(done));
  }
  void wake_helpers() { driver_.unpark(work_); }
  void await_work(Guard& guard) { driver_.park(work_, guard); }
  void wait_for(const Mark&, Guard&);  // a helper, for the device

  // A call of the driver, or of the store, that takes long: without the lock.
  template <class F>
  void outside(Guard&, F&& call);
  unsigned calling() const { return calling_; }
  bool helpers_wait() const { return helpers_wait_ > 0; }

  void engine_ends() { over_ = true; }
  bool over() const { return over_; }
  void program_ends() { ending_ = true; }
  bool program_ending() const { return ending_; }
  void nothing_comes() { ended_ = true; }
  bool comes_no_more() const { return ended_; }

  double stall_us() const { return stall_us_; }

 private:
  Driver& driver_;
  mutable std::mutex lock_;
  std::condition_variable freed_, work_;
  unsigned calling_ = 0;  // threads in calls without the lock
  int helpers_wait_ = 0;  // for the device
  double stall_us_ = 0;   // time in which a training thread waited
  bool over_ = false;
  bool ending_ = false;  // the program: nothing begins that nobody waits for
  bool ended_ = false;   // the store, or the helper, for the process ends: nothing comes any more
};

template <class F>
void Monitor::outside(Guard& guard, F&& call) {
  const auto back = [&] {
    guard.lock();
    --calling_;
    driver_.unpark(freed_);
  };
  ++calling_;
  guard.unlock();
  try {
    call();
  } catch (...) {
    back();
    throw;
  }
  back();
}

inline void Monitor::wait_for_room(Guard& guard) {
  const auto begin = Clock::now();
  if (!ended_) driver_.park(freed_, guard);
  if (ended_) throw ProcessEnds();
  stall_us_ += 1e6 * seconds_since(begin);
}

inline void Monitor::wait_for(const Mark& mark, Guard& guard) {
  ++helpers_wait_;
  guard.unlock();
  driver_.synchronize(mark.get());
  guard.lock();
  --helpers_wait_;
}

}  // namespace sentinel::gpu::pool
