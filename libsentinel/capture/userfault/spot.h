// Where a thread that waits for a fault was when it took it. Read from /proc, for small windows
// only: an entry costs microseconds.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace sentinel {

enum class Spot : std::uint8_t {
  program,       // between two system calls: the signal for a single step may be sent
  trap_blocked,  // the same, but the thread blocks SIGTRAP
  kernel,        // in a system call
  elsewhere      // it runs again, is gone, or /proc is not mounted
};

// Opened on first use and kept, per thread; close() it at last.
class SpotReader {
 public:
  Spot read(pid_t tid) noexcept;
  void close() noexcept;

 private:
  bool where(pid_t tid, char* text, int size) noexcept;
  bool blocks_trap(pid_t tid) noexcept;
  int syscall_file_ = 0, status_file_ = 0;  // 0: not opened; zeroed memory is a valid reader
};

}  // namespace sentinel
