// A command in the foreground. It stays in our process group, so that it reads the terminal and
// gets its signals. stdin and stdout are its own. It ends when we are killed.
//
// Each signal reaches it once: we pass on what was sent to us alone. What was sent to a whole
// group, or to each process of a job, it has had, as a witness tells (witness.h). Where it stops
// with us, we stop, so that a shell sees a job that is stopped.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <utility>

#include "cli/terminal.h"
#include "sentinel/error.h"
#include "training/launch.h"
#include "training/witness.h"

namespace sentinel::cli {
namespace {

constexpr int kNotFound = 127, kNotExecutable = 126, kSignalled = 128;

// Slurm signals a job's processes one after the other: for so long the witness may still get what
// we have had.
constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 5'000'000};
constexpr int kPauses = 20;

[[noreturn]] void become(const std::vector<std::string>& command, const sigset_t& mask,
                         pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // of the thread that forked, which waits until the end
  if (getppid() != parent) _exit(kSignalled + SIGKILL);
  std::vector<char*> words;
  for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execvp(words[0], words.data());
  const int code = errno;
  say(command[0] + ": " + (code == ENOENT ? "command not found" : std::strerror(code)));
  _exit(code == ENOENT ? kNotFound : kNotExecutable);
}

int status_of(int status) {
  return WIFSIGNALED(status) ? kSignalled + WTERMSIG(status) : WEXITSTATUS(status);
}

bool stops(int signal) { return signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU; }

// The command may be in a group of its own: what ours was sent has not reached it then.
class Witnesses {
 public:
  bool had(int signal, bool in_our_group) {
    const bool ours = beside_.had(signal), all = apart_.had(signal);
    return in_our_group ? ours : all;
  }

 private:
  Witness beside_{Witness::Group::ours}, apart_{Witness::Group::own};
};

// Signals blocked rather than handled: sigwaitinfo() then delivers them one by one, none is lost
// between fork and wait, and the command inherits the mask and dispositions that we began with.
class Blocked {
 public:
  Blocked() {
    sigfillset(&all_);
    signal(SIGCHLD, SIG_DFL);  // whoever started us may have it ignored, and no status would come
    sigprocmask(SIG_SETMASK, &all_, &before_);
  }
  ~Blocked() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;

  const sigset_t& all() const { return all_; }
  const sigset_t& before() const { return before_; }

 private:
  sigset_t all_{}, before_{};
};

class Foreground {
 public:
  int run(const std::vector<std::string>& command) {
    const pid_t us = getpid();
    child_ = fork();
    if (child_ < 0) throw Error("could not start the command", errno);
    if (child_ == 0) become(command, blocked_.before(), us);
    for (siginfo_t info;;) {
      if (sigwaitinfo(&blocked_.all(), &info) < 0) continue;
      if (info.si_signo == SIGCHLD && ended()) break;
      if (info.si_signo != SIGCHLD || info.si_code <= 0) take(info);
      if (stopped_ && stop_ != 0) stop();
    }
    forget_shared();
    return status_of(status_);
  }

 private:
  bool had(int signal) { return witnesses_.had(signal, getpgid(child_) == getpgrp()); }

  bool ended() {
    while (waitpid(child_, &status_, WNOHANG | WUNTRACED | WCONTINUED) == child_) {
      if (!WIFSTOPPED(status_) && !WIFCONTINUED(status_)) return true;
      stopped_ = WIFSTOPPED(status_);
    }
    return false;
  }

  void take(const siginfo_t& info) {
    if (stops(info.si_signo)) stop_ = info.si_signo;
    if (info.si_signo == SIGCONT) stop_ = 0;
    for (int pause = 0; !had(info.si_signo); nanosleep(&kPause, nullptr))
      if (pause++ == kPauses) return pass_on(info);
  }

  void pass_on(const siginfo_t& info) const {
    if (info.si_code == SI_QUEUE)
      sigqueue(child_, info.si_signo, info.si_value);
    else
      kill(child_, info.si_signo);
  }

  // As the command did. Whoever continues us sends SIGCONT, which is passed on like any signal.
  void stop() {
    const int signal = std::exchange(stop_, 0);
    sigset_t pending, one;
    sigpending(&pending);
    if (sigismember(&pending, SIGCONT) == 1) return;
    struct sigaction ours {
    }, plain{};
    plain.sa_handler = SIG_DFL;
    sigaction(signal, &plain, &ours);
    raise(signal);
    sigemptyset(&one);
    sigaddset(&one, signal);
    sigprocmask(SIG_UNBLOCK, &one, nullptr);
    sigprocmask(SIG_BLOCK, &one, nullptr);
    sigaction(signal, &ours, nullptr);
  }

  // What has ended the command, perhaps, is not to end us as well: there is more to say.
  void forget_shared() {
    sigset_t pending, one;
    sigpending(&pending);
    const timespec at_once{};
    for (int signal = 1; signal <= SIGRTMAX; ++signal) {
      if (sigismember(&pending, signal) != 1 || !witnesses_.had(signal, true)) continue;
      sigemptyset(&one);
      sigaddset(&one, signal);
      sigtimedwait(&one, nullptr, &at_once);
    }
  }

  Blocked blocked_;
  Witnesses witnesses_;
  pid_t child_ = -1;
  int status_ = 0;
  bool stopped_ = false;  // the command is
  int stop_ = 0;          // the signal that asked for it
};

}  // namespace

int run_command(const std::vector<std::string>& command) { return Foreground().run(command); }

}  // namespace sentinel::cli
