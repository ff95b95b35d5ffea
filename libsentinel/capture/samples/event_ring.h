// The sampling events of one thread, or of one processor, and the ring that they share.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "base/descriptor.h"
#include "capture/samples/sample_buffer.h"
#include "capture/samples/sample_event.h"

namespace sentinel {

class EventRing {
 public:
  // `thread` on any processor, or with -1 every thread on `processor`. Throws Error with the errno.
  EventRing(const SampleEvents&, pid_t thread, int processor);
  ~EventRing();
  EventRing(EventRing&&) noexcept;
  EventRing& operator=(EventRing&&) noexcept;

  pid_t thread() const noexcept { return thread_; }
  SampleRing samples() const noexcept { return {mapping_, bytes_}; }

 private:
  explicit EventRing(pid_t thread) noexcept : thread_(thread) {}
  int open(const perf_event_attr&, int processor, int leader);
  void open_all(const SampleEvents&, int processor);
  void map();

  pid_t thread_;
  std::vector<OurFile> opened_;  // all of them
  std::vector<int> sampling_;    // those that write to the ring
  void* mapping_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace sentinel
