// Reads a waiting thread's place from /proc/self/task.
#include "capture/userfault/spot.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sentinel {
namespace {

constexpr int kPatience = 1000;  // a thread that has sent its fault needs some time to fall asleep

// Reads /proc/self/task/<tid>/<name> through a kept descriptor. A thread id may have been given
// away anew since: then the old descriptor answers ESRCH.
bool read_task_file(int& file, pid_t tid, const char* name, char* text, int size) noexcept {
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (file <= 0) {
      char path[64];
      std::snprintf(path, sizeof path, "/proc/self/task/%d/%s", static_cast<int>(tid), name);
      file = open(path, O_RDONLY | O_CLOEXEC);
      if (file < 0) return false;
    }
    const ssize_t got = pread(file, text, static_cast<std::size_t>(size - 1), 0);
    if (got > 0) {
      text[got] = 0;
      return true;
    }
    ::close(file);
    file = 0;
  }
  return false;
}

}  // namespace

// The file says "running", or "-1 SP PC", or the number of the system call, its arguments, SP, PC.
Spot SpotReader::read(pid_t tid) noexcept {
  char text[256];
  for (int i = 0; i < kPatience; ++i) {
    if (!read_task_file(syscall_file_, tid, "syscall", text, sizeof text)) return Spot::elsewhere;
    if (text[0] == '-') return blocks_trap(tid) ? Spot::trap_blocked : Spot::program;
    if (text[0] >= '0' && text[0] <= '9') return Spot::kernel;
    sched_yield();
  }
  return Spot::elsewhere;
}

bool SpotReader::blocks_trap(pid_t tid) noexcept {
  char text[4096];
  if (!read_task_file(status_file_, tid, "status", text, sizeof text)) return true;
  const char* const mask = std::strstr(text, "SigBlk:");
  return !mask || (std::strtoull(mask + 7, nullptr, 16) >> (SIGTRAP - 1)) & 1;
}

void SpotReader::close() noexcept {
  if (syscall_file_ > 0) ::close(syscall_file_);
  if (status_file_ > 0) ::close(status_file_);
  syscall_file_ = status_file_ = 0;
}

}  // namespace sentinel
