// The stream on which each thread computes, for one engine: a thread may compute on several
// devices.
#pragma once

#include "execute/gpu/driver.h"

namespace sentinel::gpu {

class ThreadStreams {
 public:
  void set(Stream);  // throws Error for the default stream that each thread has of its own
  Stream here() const;
  void forget(Stream);  // if it is the calling thread's
};

}  // namespace sentinel::gpu
