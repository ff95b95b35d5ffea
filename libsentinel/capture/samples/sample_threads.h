// The sampling events of every thread of this process.
//
// Each thread has its own events, whatever processor it runs on, and one ring for them. Inherited
// events would see a new thread from its birth, but can be mapped per processor only: T threads on
// C processors would take T x C descriptors. Frameworks keep their threads; the accesses of a new
// one are missed until follow() finds it. Kernels whose IBS cannot follow a thread (EINVAL) get an
// event per processor instead, whose samples are those of every process.
#pragma once

#include <span>
#include <vector>

#include "capture/samples/event_ring.h"

namespace sentinel {

class SampleThreads {
 public:
  explicit SampleThreads(SampleEvents);  // throws Error with the errno

  // Looks for threads that have come or gone; one system call where their number is the same.
  // The rings of those that have gone are there until drop_ended().
  void follow() noexcept;
  std::span<const EventRing> rings() const noexcept { return rings_; }
  void drop_ended() noexcept;
  double unseen() const noexcept;  // share of the threads whose events were refused

 private:
  void follow_each();

  SampleEvents events_;
  std::vector<EventRing> rings_;
  std::vector<pid_t> ended_;
  std::size_t threads_ = 0, refused_ = 0;  // when last looked
  bool per_processor_ = false;
};

// This processor's events; none, with reason and remedy, where this process may not use them.
SampleEvents find_sample_events();

}  // namespace sentinel
