// Runs of adjacent granules, and lists of them: first in, first out, one entry for many granules.
//
// A list names granules and knows nothing of their states: an entry may be out of date, and whoever
// takes it looks. Plain values without a lock; the owner's lock guards them.
#pragma once

#include <cstdint>
#include <deque>

namespace sentinel {

using GranuleIndex = std::uint32_t;
struct Run {  // of granules
  GranuleIndex first = 0, count = 0;
};
using Runs = std::deque<Run>;

inline void append(Runs& runs, GranuleIndex index) {
  if (!runs.empty() && runs.back().first + runs.back().count == index)
    ++runs.back().count;
  else
    runs.push_back({index, 1});
}

// The list has an entry.
inline GranuleIndex take_first(Runs& runs) {
  auto& run = runs.front();
  const auto index = run.first++;
  if (--run.count == 0) runs.pop_front();
  return index;
}

}  // namespace sentinel
