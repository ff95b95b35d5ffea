// Accounts for held fast memory, drops dead granules, and orders demotions when room lacks.
#include "engine/numa/node_room.h"

#include <algorithm>
#include <utility>

namespace sentinel {

NodeRoom::NodeRoom(NodeGranules& granules, NodeQueues& queues,
                   const std::atomic<std::uint64_t>& clock)
    : granules_(granules), queues_(queues), clock_(clock) {}

// Shrinking: granules over the budget leave, those that no plan wants first.
void NodeRoom::set_budget(std::uint64_t granules, Guard& guard) noexcept {
  budget_ = granules;
  has(0);
  for (const bool wanted : {false, true})
    for (GranuleIndex i = 0; i < granules_.top() && held_ > budget_ + queues_.making_room(); ++i)
      if (granules_[i].place == GranuleState::fast && (granules_[i].wanted != 0) == wanted)
        queues_.queue_out(i);
  queues_.wait(guard, [this] { return held_ <= budget_ || queues_.making_room() == 0; });
  peak_ = held_;
  changed();
}

void NodeRoom::hold(std::uint64_t granules) noexcept {
  held_ += granules;
  peak_ = std::max(peak_, held_);
}

// Within the budget, if need be by dropping what lies dead in fast memory.
bool NodeRoom::has(std::uint64_t granules) noexcept {
  while (held_ + granules > budget_ && !dead_.empty()) drop_dead(held_ + granules - budget_);
  return held_ + granules <= budget_;
}

// A birth waits for demotions that are under way if they make enough room for it.
bool NodeRoom::make_for(Run run, Guard& guard) noexcept {
  const auto needed = [&] {
    std::uint64_t count = 0;
    for (auto i = run.first; i < run.first + run.count; ++i) count += !counted(granules_[i].place);
    return count;
  };
  const auto enough = [&] {
    const auto under_way = queues_.making_room();
    return under_way != 0 && held_ + needed() <= budget_ + under_way;
  };
  // Again where it was just refused: it may have become free to leave while it was asked.
  for (int round = 0; round < 2 && !has(needed()); ++round) {
    retry_refused();
    if (!enough()) return false;
    queues_.stall(guard, [&] { return has(needed()) || !enough(); });
  }
  return held_ + needed() <= budget_;
}

bool NodeRoom::admit() noexcept {
  lacking_ = !has(1);
  if (!lacking_) {
    hold(1);
    return true;
  }
  retry_refused();
  queues_.tell_waiting();  // a promotion may be hopeless now
  return false;
}

void NodeRoom::changed() noexcept {
  expect();
  queues_.wake_promoter();
}

void NodeRoom::drop_dead(std::uint64_t most) noexcept {
  auto& listed = dead_.front();
  Run run{listed.first, 0};
  while (listed.count > 0 && run.count < most) {
    auto& granule = granules_[listed.first];
    granule.listed &= ~kListedDead;
    const bool dead = granule.live == 0 && granule.place == GranuleState::fast;
    if (!dead && run.count > 0) {
      granule.listed |= kListedDead;  // looked at again next time
      break;
    }
    ++listed.first, --listed.count;
    if (!dead) {
      run.first = listed.first;
      continue;
    }
    granule.place = GranuleState::slow;
    ++run.count;
  }
  if (listed.count == 0) dead_.pop_front();
  granules_.drop(run);
  held_ -= run.count;
}

void NodeRoom::list_dead(GranuleIndex index) noexcept {
  if (granules_[index].listed & kListedDead) return;
  granules_[index].listed |= kListedDead;
  append(dead_, index);
}

void NodeRoom::list_refused(GranuleIndex index) noexcept {
  if (granules_[index].listed & kListedRefused) return;
  granules_[index].listed |= kListedRefused;
  append(refused_, index);
}

// Room is lacking: pages that were pinned or shared with a child may have become free to leave.
// Asked once an op, for it may as well stay so for ever.
void NodeRoom::retry_refused() noexcept {
  if (refused_.empty() || std::exchange(retried_, clock_.load()) == clock_.load()) return;
  for (const auto& run : std::exchange(refused_, {}))
    for (auto i = run.first; i < run.first + run.count; ++i) {
      auto& granule = granules_[i];
      granule.listed &= ~kListedRefused;
      if (granule.place == GranuleState::fast && granule.live != 0 && granule.wanted == 0)
        queues_.queue_out(i);
    }
}

}  // namespace sentinel
