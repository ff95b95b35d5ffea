// Keeps the counts of each tag in its own block, and hands over the list of opened tags.
#include "capture/tag_counters.h"

#include <cerrno>
#include <new>

namespace sentinel {

std::int64_t TagCounters::slot_of(std::uint32_t tag) noexcept try {
  const auto known = slots_.find(tag);
  if (known != slots_.end()) return known->second;
  if (slots_.size() == kMostTags) return -ENOSPC;
  const auto slot = static_cast<std::uint32_t>(slots_.size());
  slots_.emplace(tag, slot);
  counters_[slot].tag = tag;
  return slot;
} catch (const std::bad_alloc&) {
  return -ENOMEM;
}

void TagCounters::take(std::vector<PageCount>& out) noexcept {
  while (touched_count_ > 0 && out.size() < out.capacity()) {
    PageCount& counter = counters_[touched_[--touched_count_]];
    out.push_back(counter);
    counter.reads = counter.writes = counter.even = 0;
  }
}

}  // namespace sentinel
