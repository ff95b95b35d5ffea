// A thread of the library's own: signals are the training threads' business, and a handler might
// touch guarded memory.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace sentinel {

template <class Body>
std::thread quiet_thread(Body&& body) {
  sigset_t all, previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  std::thread thread(std::forward<Body>(body));
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  return thread;
}

}  // namespace sentinel
