// Queues granules in and out, marks those under way, and wakes who waits for them.
#include "engine/numa/node_queues.h"

namespace sentinel {

void NodeQueues::queue_in(GranuleIndex index) noexcept {
  granules_[index].place = GranuleState::queued_in;
  append(promotions_, index);
  promoter_work_.notify_one();
}

void NodeQueues::queue_out(GranuleIndex index) noexcept {
  granules_[index].place = GranuleState::queued_out;
  ++queued_out_;
  append(demotions_, index);
  demoter_work_.notify_one();
}

void NodeQueues::cancel(Granule& granule) noexcept {
  if (granule.place == GranuleState::queued_in) granule.place = GranuleState::slow;
}

void NodeQueues::recall(Granule& granule) noexcept {
  if (granule.place != GranuleState::queued_out) return;
  granule.place = GranuleState::fast;
  --queued_out_;
}

bool NodeQueues::due_in(GranuleIndex& index) noexcept {
  for (; !frozen_ && !promotions_.empty(); take_first(promotions_)) {
    index = promotions_.front().first;
    if (granules_[index].place == GranuleState::queued_in) return true;
  }
  return false;
}

void NodeQueues::begin_in() noexcept {
  granules_[take_first(promotions_)].place = GranuleState::arriving;
  ++arriving_;
}

bool NodeQueues::begin_out(GranuleIndex& index) noexcept {
  while (!frozen_ && !demotions_.empty()) {
    index = take_first(demotions_);
    if (granules_[index].place != GranuleState::queued_out) continue;
    granules_[index].place = GranuleState::leaving;
    --queued_out_;
    ++leaving_;
    return true;
  }
  return false;
}

void NodeQueues::end_in(GranuleIndex index, GranuleState place) noexcept {
  --arriving_;
  granules_[index].place = place;
}

void NodeQueues::end_out(GranuleIndex index, GranuleState place) noexcept {
  --leaving_;
  granules_[index].place = place;
}

void NodeQueues::freeze(Guard& guard) noexcept {
  frozen_ = true;
  settled_.wait(guard, [this] { return arriving_ == 0 && leaving_ == 0; });
}

void NodeQueues::thaw() noexcept {
  frozen_ = false;
  promoter_work_.notify_one();
  demoter_work_.notify_one();
}

void NodeQueues::stop() noexcept {
  stop_ = true;
  promoter_work_.notify_all();
  demoter_work_.notify_all();
}

}  // namespace sentinel
