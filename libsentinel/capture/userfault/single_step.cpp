// Sets the trap flag of a waiting thread by a signal, and counts the instruction that traps.
#include "capture/userfault/single_step.h"

#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "sentinel/error.h"

namespace sentinel {
namespace {

std::atomic<Stepped*> stepped{nullptr};
struct sigaction previous {};

#if defined(__x86_64__)
constexpr bool kSupported = true;
constexpr greg_t kTrapFlag = 0x100;
void set_trap_flag(void* context, bool on) noexcept {
  greg_t& flags = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL];
  flags = on ? flags | kTrapFlag : flags & ~kTrapFlag;
}
#else
constexpr bool kSupported = false;
void set_trap_flag(void*, bool) noexcept {}
#endif

void pass_on(int signal, siginfo_t* info, void* context) noexcept {
  if (previous.sa_flags & SA_SIGINFO) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler == SIG_DFL) {
    ::signal(signal, SIG_DFL);  // takes effect when this handler returns
    raise(signal);
  } else if (previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  }
}

bool take(Stepped* const to, siginfo_t* info, void* context) noexcept {
  if (!to) return false;
  if (info->si_code == SI_QUEUE && info->si_value.sival_ptr == to) {
    if (to->begin(gettid())) set_trap_flag(context, true);
    return true;
  }
  if (info->si_code != TRAP_TRACE || !to->end(gettid())) return false;
  set_trap_flag(context, false);
  return true;
}

void on_trap(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  if (!take(stepped.load(), info, context)) pass_on(signal, info, context);
  errno = saved;
}

}  // namespace

SingleStep::SingleStep(Stepped& to) : stepped_(&to) {
  if (!kSupported)
    throw Error("counting exactly with a window under 64 pages needs an x86-64 processor");
  Stepped* nobody = nullptr;
  if (!stepped.compare_exchange_strong(nobody, &to))
    throw Error("only one access source with a window under 64 pages can be used at a time");
  struct sigaction action {};
  action.sa_sigaction = on_trap;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTRAP, &action, &previous);
}

SingleStep::~SingleStep() {
  sigaction(SIGTRAP, &previous, nullptr);
  stepped = nullptr;
}

int SingleStep::request(pid_t tid) noexcept {
  siginfo_t info{};
  info.si_code = SI_QUEUE;
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value.sival_ptr = stepped_;
  return syscall(SYS_rt_tgsigqueueinfo, getpid(), tid, SIGTRAP, &info) == 0 ? 0 : -errno;
}

}  // namespace sentinel
