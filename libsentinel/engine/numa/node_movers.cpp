// Runs the promoter and the demoter, each filling batches for the page mover.
#include "engine/numa/node_movers.h"

#include <algorithm>

#include "base/quiet_thread.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kBatchBytes = 2u << 20;  // some hundred pages
constexpr std::size_t kHugeBatch = 4;            // huge pages

}  // namespace

NodeMovers::NodeMovers(std::mutex& engine_lock, NodeCalls& calls, NodeGranules& granules,
                       NodeQueues& queues, NodeRoom& room)
    : lock_(engine_lock),
      arena_(granules.arena()),
      granules_(granules),
      queues_(queues),
      room_(room),
      in_(calls, arena_.granule()),
      out_(calls, arena_.granule()) {
  promoter_ = quiet_thread([this] { promoter(); });
  demoter_ = quiet_thread([this] { demoter(); });
}

NodeMovers::~NodeMovers() {
  {
    const Guard guard(lock_);
    queues_.stop();
  }
  promoter_.join();
  demoter_.join();
}

void NodeMovers::add_to(EngineCounters& counters) const noexcept {
  counters.promoted_bytes += promoted_bytes_;
  counters.demoted_bytes += demoted_bytes_;
  in_.add_to(counters);
  out_.add_to(counters);
}

std::size_t NodeMovers::batch_granules() const noexcept {
  return std::max<std::size_t>(kBatchBytes / arena_.granule(), kHugeBatch);
}

void NodeMovers::promoter() noexcept {
  Batch batch;
  Guard guard(lock_);
  while (!queues_.stopped()) {
    fill_promotions(batch);
    if (batch.empty())
      queues_.wait_for_promotions(guard);
    else
      carry(batch, true, guard);
  }
}

void NodeMovers::demoter() noexcept {
  Batch batch;
  Guard guard(lock_);
  while (!queues_.stopped()) {
    fill_demotions(batch);
    if (batch.empty())
      queues_.wait_for_demotions(guard);
    else
      carry(batch, false, guard);
  }
}

// A granule that arrives is counted at both ends from here on.
void NodeMovers::fill_promotions(Batch& batch) noexcept {
  batch.clear();
  room_.expect();
  for (GranuleIndex index = 0;
       batch.size() < batch_granules() && queues_.due_in(index) && room_.admit();) {
    queues_.begin_in();
    batch.push_back(index);
  }
}

void NodeMovers::fill_demotions(Batch& batch) noexcept {
  batch.clear();
  for (GranuleIndex index = 0; batch.size() < batch_granules() && queues_.begin_out(index);)
    batch.push_back(index);
}

void NodeMovers::carry(const Batch& batch, bool in, Guard& guard) noexcept {
  static thread_local std::vector<std::uintptr_t> addresses;
  static thread_local std::vector<Moved> moved;
  guard.unlock();
  addresses.clear();
  for (std::size_t i = 0; i < batch.size();) {
    auto last = i + 1;
    while (last < batch.size() && batch[last] == batch[last - 1] + 1) ++last;
    granules_.bind({batch[i], static_cast<GranuleIndex>(last - i)}, in);
    for (; i < last; ++i) addresses.push_back(arena_.address_of(batch[i]));
  }
  moved.resize(batch.size());
  (in ? in_ : out_).move(addresses, arena_.node(in), moved);
  guard.lock();
  for (std::size_t i = 0; i < batch.size(); ++i)
    in ? arrived(batch[i], moved[i]) : left(batch[i], moved[i]);
  queues_.tell_waiting();
  if (!in) room_.changed();
}

void NodeMovers::arrived(GranuleIndex index, const Moved& moved) noexcept {
  const auto& granule = granules_[index];
  promoted_bytes_ += moved.bytes;
  const bool stays = moved.bytes == 0 && moved.left != 0;
  queues_.end_in(index, stays ? GranuleState::slow : GranuleState::fast);
  if (stays) {
    room_.release(1);
    granules_.bind({index, 1}, false);
  } else if (granule.live == 0) {
    room_.list_dead(index);
  } else if (granule.wanted == 0) {
    queues_.queue_out(index);
  }
}

// A granule that could not leave is still in fast memory, and counted.
void NodeMovers::left(GranuleIndex index, const Moved& moved) noexcept {
  const auto& granule = granules_[index];
  demoted_bytes_ += moved.bytes;
  if (moved.left != 0) {
    queues_.end_out(index, GranuleState::fast);
    granules_.bind({index, 1}, true);
    if (granule.live == 0)
      room_.list_dead(index);
    else if (granule.wanted == 0)
      room_.list_refused(index);
    return;
  }
  queues_.end_out(index, GranuleState::slow);
  room_.release(1);
  if (granule.live != 0 && granule.wanted != 0) queues_.queue_in(index);
}

}  // namespace sentinel
