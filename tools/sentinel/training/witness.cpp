// The witness keeps all signals blocked: one that it was sent stays pending until it is asked.
#include "training/witness.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

#include "sentinel/error.h"

namespace sentinel::cli {
namespace {

using Signal = unsigned char;

// The line is its only file: a pipe that we inherited ends when we end.
[[noreturn]] void testify(int line) {
  if (dup2(line, 0) < 0) _exit(1);
  close_range(1, ~0u, 0);
  for (Signal asked = 0; read(0, &asked, 1) == 1;) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, asked);
    const timespec at_once{};
    const Signal had = sigtimedwait(&set, nullptr, &at_once) == asked ? 1 : 0;
    if (write(0, &had, 1) != 1) break;
  }
  _exit(0);
}

}  // namespace

Witness::Witness(Group group) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error("could not make a pair of sockets", errno);
  line_ = Descriptor(ends[0]);
  const Descriptor other(ends[1]);
  const timeval patience{.tv_sec = 1, .tv_usec = 0};  // it may be stopped
  setsockopt(line_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const pid_t command = getpid();
  process_ = fork();
  if (process_ < 0) throw Error("could not start a process", errno);
  if (process_ > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != command) _exit(0);
  prctl(PR_SET_NAME, "signal-witness");
  if (group == Group::own) setpgid(0, 0);
  testify(other.get());
}

Witness::~Witness() {
  kill(process_, SIGKILL);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

bool Witness::had(int signal) noexcept {
  const auto asked = static_cast<Signal>(signal);
  Signal had = 0;
  if (send(line_.get(), &asked, 1, MSG_NOSIGNAL) != 1) return false;
  return recv(line_.get(), &had, 1, 0) == 1 && had == 1;
}

}  // namespace sentinel::cli
