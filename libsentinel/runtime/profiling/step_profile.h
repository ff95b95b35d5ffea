// A recorded step as a profile: takes it from the recorder, adds what is known of the program and
// of its uncounted steps, and writes it where the options say. Decides nothing about training.
// Guarded by the session's lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "capture/recorder.h"
#include "options/options.h"
#include "runtime/limit/summary.h"
#include "runtime/limit/voice.h"
#include "runtime/profiling/counting.h"
#include "sentinel/profile.h"

namespace sentinel {

class StepProfile {
 public:
  // All but the framework's name outlive it.
  StepProfile(const SessionOptions&, std::string framework, const StepRecorder&, const Counting&,
              Summary&, const Voice&);

  const std::string& framework() const { return framework_; }
  void program(const char* model, std::size_t batch);  // the first that is told counts

  // A step has ended in which nothing was counted: its times are the ops' own.
  void uncounted_step_ended();
  bool as_last_step() const { return recorder_.signature() == last_signature_; }
  void forget_times() { times_.clear(); }

  // What each op of that profile took in the step that was recorded; empty: it is of other ops.
  std::vector<double> times_of(const Profile&) const;
  Profile take(bool complete, const std::string& reason) const;
  // Left behind by a program that is killed in the profiling step: the step so far, once a second,
  // or more seldom where it takes long to write.
  void snapshot();
  void begin_snapshots() { next_snapshot_ = {}; }
  void store(const Profile&);  // throws Error

 private:
  const SessionOptions& options_;
  std::string framework_, model_;
  std::size_t batch_ = 0;
  const StepRecorder& recorder_;
  const Counting& counting_;
  Summary& summary_;
  const Voice& voice_;
  StepRecorder::Times times_;  // of the last step that was not counted
  double us_ = 0;              // and how long it took
  std::uint64_t last_signature_ = 0;
  Clock::time_point next_snapshot_;  // not before
};

}  // namespace sentinel
