#include "execute/gpu/thread_streams.h"

#include <unordered_map>

#include "sentinel/error.h"

namespace sentinel::gpu {
namespace {

const auto kPerThreadStream = reinterpret_cast<Stream>(2);  // CU_STREAM_PER_THREAD

// Never destroyed: a thread frees tensors while it takes down what is its own.
std::unordered_map<const ThreadStreams*, Stream>& streams_here() {
  static thread_local auto* const streams = new std::unordered_map<const ThreadStreams*, Stream>;
  return *streams;
}

}  // namespace

void ThreadStreams::set(Stream stream) {
  if (stream == kPerThreadStream)
    throw Error(
        "the default stream of each thread is no stream to compute on: events of one thread "
        "tell nothing of another's; use a stream that was made");
  streams_here()[this] = stream;
}

Stream ThreadStreams::here() const {
  const auto at = streams_here().find(this);
  return at == streams_here().end() ? nullptr : at->second;
}

void ThreadStreams::forget(Stream stream) {
  if (here() == stream) streams_here().erase(this);
}

}  // namespace sentinel::gpu
