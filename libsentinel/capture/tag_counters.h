// Openings per tag, and the list of tags that were opened since the last drain. Counting neither
// allocates nor searches: arming turns a tag into a slot, pages carry the slot.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "capture/reserved.h"
#include "sentinel/access_source.h"

namespace sentinel {

class TagCounters {
 public:
  TagCounters() : counters_(kMostTags), touched_(kMostTags) {}

  // The tag's slot, or -ENOSPC or -ENOMEM. Allocates: not for the fault path.
  std::int64_t slot_of(std::uint32_t tag) noexcept;

  void count(std::uint32_t slot, std::uint32_t weight, bool even, bool write) noexcept {
    PageCount& counter = counters_[slot];
    if (counter.reads + counter.writes == 0) touched_[touched_count_++] = slot;
    (write ? counter.writes : counter.reads) += weight;
    if (even) counter.even += weight;
  }

  std::size_t touched() const noexcept { return touched_count_; }
  // Moves as many counts to `out` as fit its capacity, so that it does not allocate.
  void take(std::vector<PageCount>& out) noexcept;

 private:
  static constexpr std::size_t kMostTags = std::size_t{1} << 22;

  std::unordered_map<std::uint32_t, std::uint32_t> slots_;
  Reserved<PageCount> counters_;  // all zero unless touched
  Reserved<std::uint32_t> touched_;
  std::size_t touched_count_ = 0;
};

}  // namespace sentinel
