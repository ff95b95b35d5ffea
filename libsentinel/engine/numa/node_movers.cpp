// The promoter and the demoter of NUMA tiers. Each takes what is due, as much as one call moves,
// and holds no lock while it moves.
#include <algorithm>

#include "engine/numa/node_engine.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kBatchBytes = 2u << 20;  // some hundred pages
constexpr std::size_t kHugeBatch = 4;            // huge pages

// The next granule of a queue, or none. Entries may be out of date: who takes one looks.
bool next(Runs& runs, GranuleIndex& index) {
  if (runs.empty()) return false;
  auto& run = runs.front();
  index = run.first++;
  if (--run.count == 0) runs.pop_front();
  return true;
}

}  // namespace

std::size_t NodeEngine::batch_granules() const noexcept {
  return std::max<std::size_t>(kBatchBytes / granule_, kHugeBatch);
}

void NodeEngine::promoter() noexcept {
  Batch batch;
  Guard guard(lock_);
  while (!stop_) {
    fill_promotions(batch);
    if (batch.empty())
      promoter_work_.wait(guard);
    else
      carry(batch, true, guard);
  }
}

void NodeEngine::demoter() noexcept {
  Batch batch;
  Guard guard(lock_);
  while (!stop_) {
    fill_demotions(batch);
    if (batch.empty())
      demoter_work_.wait(guard);
    else
      carry(batch, false, guard);
  }
}

// A granule that arrives is counted at both ends from here on.
void NodeEngine::fill_promotions(Batch& batch) noexcept {
  batch.clear();
  roomless_ = false;
  while (!frozen_ && batch.size() < batch_granules() && !promotions_.empty()) {
    auto& granule = granules_[promotions_.front().first];
    if (granule.place == Place::queued_in && !room_for(1)) {
      roomless_ = true;
      retry_refused();
      settled_.notify_all();  // who waits should know
      break;
    }
    GranuleIndex index = 0;
    next(promotions_, index);
    if (granule.place != Place::queued_in) continue;
    granule.place = Place::arriving;
    ++held_;
    ++arriving_;
    batch.push_back(index);
  }
  counters_.peak_bytes = std::max(counters_.peak_bytes, held_ * granule_);
}

void NodeEngine::fill_demotions(Batch& batch) noexcept {
  batch.clear();
  GranuleIndex index = 0;
  while (!frozen_ && batch.size() < batch_granules() && next(demotions_, index)) {
    auto& granule = granules_[index];
    if (granule.place != Place::queued_out) continue;
    granule.place = Place::leaving;
    --queued_out_;
    ++leaving_;
    batch.push_back(index);
  }
}

void NodeEngine::carry(const Batch& batch, bool in, Guard& guard) noexcept {
  static thread_local std::vector<std::uintptr_t> addresses;
  static thread_local std::vector<Moved> moved;
  guard.unlock();
  addresses.clear();
  for (std::size_t i = 0; i < batch.size();) {
    auto last = i + 1;
    while (last < batch.size() && batch[last] == batch[last - 1] + 1) ++last;
    bind({batch[i], static_cast<GranuleIndex>(last - i)}, in);
    for (; i < last; ++i) addresses.push_back(address_of(batch[i]));
  }
  moved.resize(batch.size());
  (in ? mover_in_ : mover_out_).move(addresses, in ? nodes_.fast : nodes_.slow, moved);
  guard.lock();
  for (std::size_t i = 0; i < batch.size(); ++i)
    in ? arrived(batch[i], moved[i]) : left(batch[i], moved[i]);
  settled_.notify_all();
  if (!in) room_changed();
}

void NodeEngine::arrived(GranuleIndex index, const Moved& moved) noexcept {
  auto& granule = granules_[index];
  --arriving_;
  counters_.promoted_bytes += moved.bytes;
  const bool stays = moved.bytes == 0 && moved.left != 0;
  granule.place = stays ? Place::slow : Place::fast;
  if (stays) {
    --held_;
    bind({index, 1}, false);
  } else if (granule.live == 0) {
    list_dead(index);
  } else if (granule.wanted == 0) {
    queue_out(index);
  }
}

// What could not leave is still in fast memory, and counted.
void NodeEngine::left(GranuleIndex index, const Moved& moved) noexcept {
  auto& granule = granules_[index];
  --leaving_;
  counters_.demoted_bytes += moved.bytes;
  if (moved.left != 0) {
    granule.place = Place::fast;
    bind({index, 1}, true);
    if (granule.live == 0)
      list_dead(index);
    else if (granule.wanted == 0)
      list_refused(index);
    return;
  }
  granule.place = Place::slow;
  --held_;
  if (granule.live != 0 && granule.wanted != 0) queue_in(index);
}

}  // namespace sentinel
