// Finds or makes a thread's window by its id; no entry ever goes.
#include "capture/userfault/thread_windows.h"

namespace sentinel {

ThreadWindows::~ThreadWindows() {
  for (std::size_t i = 0; i < kThreads; ++i) states_[i].spot.close();
}

ThreadState& ThreadWindows::of(pid_t tid) noexcept {
  const auto first = static_cast<std::size_t>(tid) % kThreads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    const std::size_t at = (first + i) % kThreads;
    ThreadState& state = states_[at];
    if (state.tid == tid) return state;
    if (state.tid != 0) continue;
    state.tid = tid;
    state.window = Window(&storage_[at * capacity_], capacity_);
    return state;
  }
  return states_[first];
}

ThreadState* ThreadWindows::find(pid_t tid) noexcept {
  const auto first = static_cast<std::size_t>(tid) % kThreads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    ThreadState& state = states_[(first + i) % kThreads];
    if (state.tid == tid) return &state;
    if (state.tid == 0) return nullptr;
  }
  return nullptr;
}

}  // namespace sentinel
