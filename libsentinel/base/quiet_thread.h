// A thread of the library's own: signals are the training threads' business, and a handler might
// touch guarded memory.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace sentinel {

// Throws std::system_error where no thread can be had.
template <class Body>
std::thread quiet_thread(Body&& body) {
  struct Blocked {
    Blocked() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &previous);
    }
    ~Blocked() { pthread_sigmask(SIG_SETMASK, &previous, nullptr); }
    sigset_t previous;
  } const blocked;
  return std::thread(std::forward<Body>(body));
}

}  // namespace sentinel
