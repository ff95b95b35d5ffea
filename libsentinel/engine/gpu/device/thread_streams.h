// The stream on which each thread computes, for one engine: a thread may compute on several
// devices.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "engine/gpu/device/driver.h"

namespace sentinel::gpu {

class ThreadStreams {
 public:
  void set(Stream);  // throws Error for the default stream that each thread has of its own
  // The default stream where the calling thread has set none, or one that was forgotten since.
  Stream here() const;
  // Whether the calling thread has said that it computes there, since it set that stream.
  bool computes_here() const;
  void compute_here();
  void forget(Stream);  // it is no thread's any more; another that is made may have its handle

 private:
  friend struct StreamHere;
  struct Life;  // of a stream: from when it is set first until it is forgotten

  std::mutex lock_;
  std::map<Stream, std::shared_ptr<Life>> lives_;
};

}  // namespace sentinel::gpu
