// A command in the foreground. It stays in our process group, so that the terminal's signals reach
// it by themselves; what is sent to us alone is passed on. stdin and stdout are its own.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "launch.h"
#include "sentinel/error.h"
#include "terminal.h"

namespace sentinel::cli {
namespace {

constexpr int kNotFound = 127, kNotExecutable = 126, kSignalled = 128;
constexpr int kForwarded[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2};

// Blocked rather than handled: sigwaitinfo() then delivers them one by one, none is lost between
// fork and wait, and the command inherits the mask and dispositions that we began with.
sigset_t waited_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kForwarded) sigaddset(&set, signal);
  sigaddset(&set, SIGCHLD);
  return set;
}

[[noreturn]] void become(const std::vector<std::string>& command, const sigset_t& mask) {
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

// The terminal's driver (SI_KERNEL) has sent Ctrl-C to the command as well.
void forward(const siginfo_t& info, pid_t child) {
  const bool from_terminal = info.si_code == SI_KERNEL;
  if (!from_terminal || info.si_signo == SIGTERM) kill(child, info.si_signo);
}

int wait_for(pid_t child, const sigset_t& signals) {
  for (siginfo_t info;;) {
    if (sigwaitinfo(&signals, &info) < 0) continue;
    if (info.si_signo != SIGCHLD) {
      forward(info, child);
      continue;
    }
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return status_of(status);
  }
}

}  // namespace

int run_command(const std::vector<std::string>& command) {
  const auto signals = waited_signals();
  sigset_t before;
  signal(SIGCHLD, SIG_DFL);  // whoever started us may have it ignored, and no status would come
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t child = fork();
  if (child < 0) throw Error("could not start the command", errno);
  if (child == 0) become(command, before);
  const int status = wait_for(child, signals);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return status;
}

}  // namespace sentinel::cli
