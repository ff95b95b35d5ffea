// Counts the instructions that the calling thread executes in user space, one at a time: another
// process traces it and steps it (ptrace(2)), so no hardware counter is needed. What other threads
// and the kernel do does not count. x86-64 alone, as the rest of these benchmarks.
#pragma once

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>

#include "sentinel/error.h"

namespace sentinel::bench {

// One at a time in a process. A tracer that cannot attach throws Error.
class InstructionCounter {
 public:
  InstructionCounter() {
    void* shared =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw Error("no memory for the tracer", errno);
    shared_ = new (shared) Shared;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    const pid_t traced = gettid();
    tracer_ = fork();
    if (tracer_ == 0) {
      follow(traced, *shared_);
      _exit(0);
    }
    while (__atomic_load_n(&shared_->attached, __ATOMIC_ACQUIRE) == 0) usleep(1000);
    if (shared_->attached < 0) throw Error("the tracer cannot attach", -shared_->attached);
  }
  ~InstructionCounter() {
    kill(tracer_, SIGKILL);
    waitpid(tracer_, nullptr, 0);
    munmap(shared_, sizeof(Shared));
  }
  InstructionCounter(const InstructionCounter&) = delete;
  InstructionCounter& operator=(const InstructionCounter&) = delete;

  template <class Function>
  std::uint64_t count(Function&& function) {
    shared_->steps = 0;
    asm volatile("int3" ::: "memory");
    function();
    asm volatile("int3" ::: "memory");
    return shared_->steps;
  }

 private:
  struct Shared {
    int attached = 0;  // an errno with its sign turned: it cannot
    volatile std::uint64_t steps = 0;
  };

  static void follow(pid_t traced, Shared& shared) {
    const bool failed = ptrace(PTRACE_SEIZE, traced, nullptr, nullptr) != 0;
    __atomic_store_n(&shared.attached, failed ? -errno : 1, __ATOMIC_RELEASE);
    if (failed) return;
    bool counting = false;
    for (int status = 0; waitpid(traced, &status, __WALL) == traced && WIFSTOPPED(status);) {
      long passed_on = WSTOPSIG(status);
      siginfo_t why{};
      ptrace(PTRACE_GETSIGINFO, traced, nullptr, &why);
      if (passed_on == SIGTRAP) {
        passed_on = 0;
        if (why.si_code == SI_KERNEL)  // one of the two marks
          counting = !counting;
        else if (counting)
          shared.steps = shared.steps + 1;
      }
      ptrace(counting ? PTRACE_SINGLESTEP : PTRACE_CONT, traced, nullptr, passed_on);
    }
  }

  Shared* shared_ = nullptr;
  pid_t tracer_ = 0;
};

}  // namespace sentinel::bench
