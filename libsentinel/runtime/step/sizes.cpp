// Pairs the allocations of each op with the profiled ones, by their turn.
#include "runtime/step/sizes.h"

#include <algorithm>
#include <span>

namespace sentinel {

StepSizes::Difference StepSizes::against(const StepMatcher& matcher, const Profile& profile) const {
  Difference difference;
  for (const auto& tensor : profile.tensors) difference.bytes.push_back(tensor.bytes);
  std::uint64_t all = 0, known = 0, outgrown = 0;
  for (std::size_t first = 0, last = 0; first < made_.size(); first = last) {
    const auto op = made_[first].first;
    while (last < made_.size() && made_[last].first == op) all += made_[last++].second;
    const auto expected =
        op < matcher.size() ? matcher.allocations(op) : std::span<const StepMatcher::Expected>();
    if (expected.size() != last - first) continue;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto bytes = made_[first + i].second;
      auto& largest = difference.bytes[expected[i].tensor];
      largest = std::max(largest, bytes);
      known += bytes;
      if (bytes > expected[i].bytes) outgrown += bytes;
    }
  }
  difference.follows = made_.size() < kMost && known >= all - all / 20;
  difference.larger = outgrown > all / 20;
  return difference;
}

}  // namespace sentinel
