// Keeps each thread's stream, engine by engine, in memory of the thread.
#include "engine/gpu/device/thread_streams.h"

#include <atomic>
#include <unordered_map>

#include "base/of_thread.h"
#include "sentinel/error.h"

namespace sentinel::gpu {

struct ThreadStreams::Life {
  std::atomic<bool> over = false;
};

struct StreamHere {
  Stream stream = nullptr;
  std::shared_ptr<const ThreadStreams::Life> life;
  bool computes = false;
  bool lives() const { return life != nullptr && !life->over; }
};

namespace {

const auto kPerThreadStream = reinterpret_cast<Stream>(2);  // CU_STREAM_PER_THREAD

std::unordered_map<const ThreadStreams*, StreamHere>& streams_here() {
  return of_thread<std::unordered_map<const ThreadStreams*, StreamHere>>();
}

}  // namespace

void ThreadStreams::set(Stream stream) {
  if (stream == kPerThreadStream)
    throw Error(
        "the default stream of each thread is no stream to compute on: events of one thread "
        "tell nothing of another's; use a stream that was made");
  auto& here = streams_here()[this];
  if (here.lives() && here.stream == stream) return;
  const std::lock_guard guard(lock_);
  auto& life = lives_[stream];
  if (life == nullptr) life = std::make_shared<Life>();
  here = {stream, life};
}

bool ThreadStreams::computes_here() const {
  const auto at = streams_here().find(this);
  return at != streams_here().end() && at->second.lives() && at->second.computes;
}

void ThreadStreams::compute_here() {
  const auto at = streams_here().find(this);
  if (at != streams_here().end()) at->second.computes = true;
}

Stream ThreadStreams::here() const {
  const auto at = streams_here().find(this);
  return at != streams_here().end() && at->second.lives() ? at->second.stream : nullptr;
}

void ThreadStreams::forget(Stream stream) {
  const std::lock_guard guard(lock_);
  const auto at = lives_.find(stream);
  if (at == lives_.end()) return;
  at->second->over = true;
  lives_.erase(at);
}

}  // namespace sentinel::gpu
