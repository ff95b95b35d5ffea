// What became of the trainings of one `sentinel run`, over all processes of its command. The
// command makes the tally before it starts them and reads it when they are over; each session
// counts itself in as it goes, so that a process that is killed has been counted too.
//
// The tally is a page of shared memory that SENTINEL_TALLY names. A session that finds none counts
// for itself. Any thread may call. It also tells a command that was killed from one that is over.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/descriptor.h"

namespace sentinel {

class Tally {
 public:
  struct Counts {
    std::uint32_t trainings = 0;   // processes with a session
    std::uint32_t with_steps = 0;  // of these, that saw a training step
    std::uint32_t planned = 0;     // that ended a step within a plan, or under a pager
    std::uint32_t limited = 0;     // whose limit held before there was a plan, by demand
    std::uint32_t gave_up = 0;     // that met what is not supported and went on unmanaged
  };

  // Of the command: makes it, and names it in this process's environment. Throws Error.
  static Tally make();
  // Of a session.
  static Tally found();
  ~Tally();
  Tally(Tally&&) noexcept;
  Tally& operator=(Tally&&) = delete;

  // Ends this process once the command has been killed, wherever below it this one runs: the
  // command's own child has that from the kernel. Of a session, once; it lives as long as the
  // process.
  void end_with_command() const;

  // Each counts once a session.
  void begins() { count(kTrainings); }
  void saw_step() { count(kSteps); }
  void ended_planned_step() { count(kPlanned); }
  void holds_limit() { count(kLimited); }
  void gives_up() { count(kGaveUp); }

  Counts counts() const;

 private:
  enum Field { kTrainings, kSteps, kPlanned, kLimited, kGaveUp, kFields };
  struct Page {
    std::uint64_t magic = 0;
    std::atomic<std::uint32_t> counts[kFields] = {};
    std::atomic<bool> over = false;  // the command has ended by itself
  };

  Tally(Descriptor file, Page* page, pid_t command = 0)
      : file_(std::move(file)), page_(page), command_(command) {}
  void count(Field field) {
    if (!counted_[field].exchange(true, std::memory_order_relaxed)) ++page_->counts[field];
  }

  Descriptor file_;  // of the command, for its processes to open
  Page* page_;
  pid_t command_;  // of a session that found it, else 0
  std::atomic<bool> counted_[kFields] = {};
};

}  // namespace sentinel
