// Finds places on the host for leaving blocks, and frees those whose copy in is over.
#include "engine/gpu/pool/places.h"

namespace sentinel::gpu::pool {

HostStore::Place* Places::find(bool sinks) {
  collect_arrivals();
  auto* place = sinks ? store_->take_below() : store_->take();
  if (place != nullptr) return place;
  if (sinks) return store_->take();
  return store_->may_grow() ? nullptr : store_->take_below();
}

void Places::have(std::uint64_t count, Guard& guard) {
  while (store_->lacks(count)) store_->grow(count, guard);
}

void Places::collect_arrivals() {
  while (!arrivals_.empty() && streams_.done(arrivals_.front().mark)) {
    store_->give(arrivals_.front().place);
    arrivals_.pop_front();
  }
}

}  // namespace sentinel::gpu::pool
