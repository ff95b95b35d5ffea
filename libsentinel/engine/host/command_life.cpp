// Waits for the process in a thread of its own, through a pidfd.
#include "engine/host/command_life.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/descriptor.h"
#include "base/quiet_thread.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace sentinel {

void when_process_ends(pid_t process, std::function<void()> gone) {
  const OurFile file(out_of_reach(static_cast<int>(syscall(SYS_pidfd_open, process, 0))));
  if (!file.is_open() && errno == ESRCH) return gone();
  if (!file.is_open()) return;
  quiet_thread([file, gone = std::move(gone)] {
    pollfd wait{.fd = file.number(), .events = POLLIN, .revents = 0};
    while (poll(&wait, 1, -1) < 0 && errno == EINTR) {
    }
    // A program that closes what it did not open has ended the watch.
    if (file.is_ours() && (wait.revents & POLLIN) != 0) gone();
  }).detach();
}

}  // namespace sentinel
