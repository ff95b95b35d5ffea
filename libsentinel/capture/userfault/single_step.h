// Runs exactly one instruction of a thread that waits for a fault, and says when it has retired.
//
// A thread that sleeps in a user-mode fault can be interrupted: request() sends it SIGTRAP, whose
// handler runs in that thread before the faulting instruction is tried again, calls begin() and
// sets the trap flag; the processor traps after the instruction, and the handler calls end(). A
// string instruction (rep movs) traps after each of its iterations, so that each counts as one.
// SIGTRAPs that are nobody's go to the handler that was there before.
#pragma once

#include <sys/types.h>

namespace sentinel {

// Both run in a signal handler of the stepped thread: async-signal-safe, no tracked memory. That
// thread was executing an instruction on tracked memory, so it holds none of the callee's locks.
class Stepped {
 public:
  virtual bool begin(pid_t tid) noexcept = 0;  // false: nothing to step, go on at once
  virtual bool end(pid_t tid) noexcept = 0;    // false: not a step of ours

 protected:
  ~Stepped() = default;
};

// At most one at a time, process-wide. Throws Error where that is taken or the processor is no
// x86-64.
class SingleStep {
 public:
  explicit SingleStep(Stepped&);
  ~SingleStep();
  SingleStep(const SingleStep&) = delete;
  SingleStep& operator=(const SingleStep&) = delete;

  int request(pid_t tid) noexcept;

 private:
  Stepped* const stepped_;
};

}  // namespace sentinel
