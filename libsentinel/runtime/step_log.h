// What steps have cost, told and written: the summary's rows, the lines of progress, the words at
// the end. Where --watch asks for it, it counts accesses in steady steps, without a hand in what is
// where. Guarded by the session's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "alloc/address_table.h"
#include "engine/engine.h"
#include "options/options.h"
#include "runtime/limit/metrics.h"
#include "runtime/limit/publication.h"
#include "runtime/limit/summary.h"
#include "runtime/limit/tally.h"
#include "runtime/limit/voice.h"
#include "runtime/limit/watch.h"
#include "runtime/plan_follower.h"
#include "runtime/replay/remaking.h"

namespace sentinel {

class StepLog {
 public:
  // All outlive it.
  StepLog(const SessionOptions&, const Engine&, AddressTable&, Summary&, const Voice&);

  // A step has ended, of that phase (StepRow::phase); steady: of the last state.
  void step_ended(const char* phase, const PlanFollower::Accesses&, bool steady);
  // A training of that framework begins.
  void trains(const std::string& framework);
  void tells_of(const Remaking& remaking) { remaking_ = &remaking; }
  void watch_birth(std::uintptr_t end);
  void stop_watching() { watch_.reset(); }
  Tally& tally() { return tally_; }  // of the command's trainings
  Publication& publication() { return publication_; }

  // The program has ended: tells what was trained, and writes the summary, if steps were seen.
  void end(std::uint32_t steps, const std::vector<std::vector<IntervalRow>>& of_plans);

 private:
  void tell_progress(const StepRow& ended);
  void tell_first_moves(const StepRow& ended);
  void watch(StepRow& ended, bool steady);

  const SessionOptions& options_;
  const Engine& engine_;
  AddressTable& table_;
  Summary& summary_;
  const Voice& voice_;
  const Remaking* remaking_ = nullptr;
  std::string framework_;
  Metrics metrics_;
  Publication publication_;
  ReplayCounters replays_;  // until the last step
  Tally tally_ = Tally::found();
  struct Told {
    double progress_us = now_us();    // when the last line of progress was said
    std::uint32_t planned_steps = 0;  // that have ended
  } told_;
  std::uint32_t watchable_ = 0;  // steady steps so far
  std::uint32_t watch_every_;    // steady steps; 0: none is watched
  std::unique_ptr<Watch> watch_;
};

}  // namespace sentinel
