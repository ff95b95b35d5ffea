// The granules that are to move and those that are moving, and the waits of all who have to do with
// them: the two movers for work, training threads for what is under way.
//
// Invariant: the three numbers are those of the granules in the places queued_out, leaving and
// arriving; these places begin and end here. Entries of the lists may name granules that have
// changed meanwhile, and are passed over.
//
// The engine's lock guards all of it; the waits take it as a held guard. It knows no budget, and
// must neither move nor drop a page.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "engine/numa/granules.h"
#include "engine/numa/runs.h"

namespace sentinel {

class NodeQueues {
 public:
  using Guard = std::unique_lock<std::mutex>;  // of the engine's lock

  explicit NodeQueues(NodeGranules& granules) : granules_(granules) {}

  void queue_in(GranuleIndex) noexcept;   // it is in slow memory
  void queue_out(GranuleIndex) noexcept;  // it is in fast memory
  // Where it is queued and has not begun to move, it stays where it is.
  void cancel(Granule&) noexcept;                        // the way in
  void recall(Granule&) noexcept;                        // the way out
  void forget_demotions() noexcept { queued_out_ = 0; }  // all is in slow memory at a stroke

  // For the movers. False: nothing is due, or nothing may begin. The next to come in stays queued
  // until it begins, for there may be no room; the next to go out is leaving when this returns.
  bool due_in(GranuleIndex&) noexcept;
  void begin_in() noexcept;
  bool begin_out(GranuleIndex&) noexcept;
  // It has moved, or has not, and is there now.
  void end_in(GranuleIndex, GranuleState) noexcept;
  void end_out(GranuleIndex, GranuleState) noexcept;
  void wait_for_promotions(Guard& guard) { promoter_work_.wait(guard); }
  void wait_for_demotions(Guard& guard) { demoter_work_.wait(guard); }
  void wake_promoter() noexcept { promoter_work_.notify_one(); }

  // Granules whose room comes free when they have left.
  std::uint64_t making_room() const { return queued_out_ + leaving_; }

  // Nothing is under way when it returns, and nothing begins to move until thaw().
  void freeze(Guard&) noexcept;
  void thaw() noexcept;
  void stop() noexcept;  // the movers end
  bool stopped() const { return stop_; }

  // Waits for moves to end until done() says so; stall() counts the time.
  template <class Done>
  void wait(Guard& guard, Done&& done) {
    settled_.wait(guard, done);
  }
  template <class Done>
  void stall(Guard& guard, Done&& done) {
    using Clock = std::chrono::steady_clock;
    const auto began = Clock::now();
    settled_.wait(guard, done);
    stall_us_ += std::chrono::duration<double, std::micro>(Clock::now() - began).count();
  }
  void tell_waiting() noexcept { settled_.notify_all(); }
  double stall_us() const { return stall_us_; }

 private:
  NodeGranules& granules_;
  Runs promotions_, demotions_;
  std::uint64_t queued_out_ = 0, arriving_ = 0, leaving_ = 0;  // granules
  bool frozen_ = false, stop_ = false;
  double stall_us_ = 0;
  std::condition_variable promoter_work_, demoter_work_, settled_;
};

}  // namespace sentinel
