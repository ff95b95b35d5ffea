// Queues reads, fills and writes; awaited reads overtake the rest.
#include "engine/gpu/store/transfer_queue.h"

#include <utility>

namespace sentinel::gpu {

void TransferQueue::keep(HostPlace* place, bool now) {
  if (place->queued && now && !place->kept) ++awaited_;
  place->kept |= now;
}

void TransferQueue::read(HostPlace* place, bool now) {
  if (place->queued && now) std::erase(reads_, place);
  if (!place->queued || now) reads_.insert(now ? reads_.begin() : reads_.end(), place);
  if (!std::exchange(place->queued, true)) awaited_ += place->kept;
}

void TransferQueue::fill(HostPlace* place, void* device, bool now) {
  place->device = device;
  place->queued = true;
  reads_.insert(now ? reads_.begin() : reads_.end(), place);
}

void TransferQueue::hasten(HostPlace* place) {
  if (!place->queued) return;
  std::erase(reads_, place);
  reads_.push_front(place);
}

void TransferQueue::forgo(HostPlace* place) {
  if (std::exchange(place->kept, false) && place->queued) --awaited_;
}

void TransferQueue::withdraw(HostPlace* place) {
  place->staged = false;
  if (std::exchange(place->queued, false)) std::erase(reads_, place);
}

void TransferQueue::forget(HostPlace* place) {
  if (!place->queued) return;
  std::erase(reads_, place);
  awaited_ -= place->kept;
}

void TransferQueue::drop_ahead() {
  std::erase_if(reads_, [](HostPlace* place) {
    const bool ahead = place->device == nullptr && !place->kept;
    if (ahead) place->queued = false;
    return ahead;
  });
}

void TransferQueue::take_read() {
  reads_.front()->queued = false;
  reads_.pop_front();
}

bool TransferQueue::was_last_awaited(const HostPlace* place) {
  return place->kept && --awaited_ == 0;
}

HostPlace* TransferQueue::take_write() {
  HostPlace* place = writes_.front();
  writes_.pop_front();
  return place;
}

bool TransferQueue::take_back(HostPlace* place) { return std::erase(writes_, place) != 0; }

}  // namespace sentinel::gpu
