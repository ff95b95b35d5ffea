// What the running step is for, and what the next one will be for. A state machine: it is told how
// steps ended and answers what is due; it has no effects.
//
//            enough steps, or two alike          profiled
//   warmup --------------------------> profiling ---------> steady   (run: there is a plan or
//   pager)
//     |                                   |  ^                |
//     |  a stored plan's step is seen     |  | by hand        +------> idle (record; unsupported)
//     +-----------------------------------+--+--> steady
//
// Guarded by the session's lock, but for paged(), which takes none.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <utility>

namespace sentinel {

class StepPhases {
 public:
  enum class State { warmup, profiling, steady, idle };
  static constexpr std::uint32_t kMostWarmups = 3;

  State state() const { return state_; }
  bool is(State state) const { return state_ == state; }
  void enter(State state) { state_ = state; }
  std::uint32_t steps() const { return steps_; }
  void step_over() { ++steps_; }

  // Warm-up.
  void warmed_up() { ++warmups_; }
  // By now a program has taken what it keeps.
  bool has_grown() const { return warmups_ == 2; }
  // A stored plan's step has not been seen, and may yet be.
  bool is_patient() const { return warmups_ < 5; }
  // A stored profile waits until the memory cgroup's room is known.
  void files_wait() { files_wait_ = true; }
  bool files_are_waiting() const { return files_wait_; }
  bool take_files() { return std::exchange(files_wait_, false); }
  // `equal`: to the step before.
  void end_warmup(bool equal);

  // Profiling.
  bool counts_next() const { return count_next_; }
  bool take_count() { return std::exchange(count_next_, false); }
  // A fork has cut a profiling step short: whether the next one is tried.
  bool try_again();
  bool manual() const { return manual_; }  // the program says which step is profiled
  void begin_by_hand();
  void end_by_hand() { manual_ = false; }

  // Steady. There will be no plans: a pager decides.
  bool paged() const { return paged_; }
  void decide_by_pager(bool paged) { paged_ = paged; }
  // A step of a known kind: true if recording may end, for no new kind came for a while.
  bool saw_known_step() { return unknown_steps_ > 0 && --unknown_steps_ == 0; }
  // Of a family without a plan: true from the second time on.
  bool saw_new_step(std::uint64_t family);

 private:
  State state_ = State::warmup;
  std::uint32_t steps_ = 0, warmups_ = 0;
  std::uint32_t tries_ = 0;  // profiling steps that a fork cut short
  bool files_wait_ = false;
  bool count_next_ = false;  // counting begins with the next step
  bool manual_ = false;
  std::atomic<bool> paged_ = false;
  std::uint32_t unknown_steps_ = 0;  // steps for which to go on recording
  std::unordered_map<std::uint64_t, std::uint32_t> new_kinds_;  // steps seen, by family
};

}  // namespace sentinel
