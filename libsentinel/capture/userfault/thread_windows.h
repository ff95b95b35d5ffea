// The window of each thread that has opened a page, found by thread id without allocating.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "capture/reserved.h"
#include "capture/userfault/spot.h"
#include "capture/userfault/window.h"

namespace sentinel {

enum class Step : std::uint8_t {
  none,
  requested,  // the signal is on its way; the page of the fault is still armed
  running     // the instruction's pages are opened and none is armed again
};

struct ThreadState {
  pid_t tid = 0;  // 0: free
  Step step = Step::none;
  bool wants_write = false;  // of the fault that the step was requested for
  std::uintptr_t wants = 0;
  SpotReader spot;
  Window window;
};

class ThreadWindows {
 public:
  // `capacity`: openings that a window may hold.
  explicit ThreadWindows(std::size_t capacity)
      : capacity_(capacity), states_(kThreads), storage_(kThreads * capacity) {}
  ~ThreadWindows();

  // Threads that have ended leave their window to their id's next owner. When more than 1024 thread
  // ids have been seen, the later ones share the first windows.
  ThreadState& of(pid_t tid) noexcept;
  ThreadState* find(pid_t tid) noexcept;  // null where it has none

 private:
  static constexpr std::size_t kThreads = 1024;
  std::size_t capacity_;
  Reserved<ThreadState> states_;
  Reserved<Opening> storage_;
};

}  // namespace sentinel
