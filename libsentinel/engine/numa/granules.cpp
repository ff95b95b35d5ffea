// Changes granules' records as tensors begin and end, and finds what lives in a run.
#include "engine/numa/granules.h"

namespace sentinel {

void NodeGranules::drop(Run run) noexcept {
  for_runs(
      run, [](const Granule& g) { return g.touched; },
      [this](Run part) {
        arena_.drop(part);
        for (auto i = part.first; i < part.first + part.count; ++i) records_[i].touched = false;
      });
}

void NodeGranules::bind(Run run, bool fast) noexcept {
  for_runs(
      run, [fast](const Granule& g) { return g.binds_fast != fast; },
      [&](Run part) {
        arena_.bind(part, fast);
        for (auto i = part.first; i < part.first + part.count; ++i) records_[i].binds_fast = fast;
      });
}

void NodeGranules::touched(Run run) noexcept {
  for (auto i = run.first; i < run.first + run.count; ++i) records_[i].touched = true;
}

void NodeGranules::all_slow() noexcept {
  for (GranuleIndex i = 0; i < top_; ++i) {
    records_[i].place = GranuleState::slow;
    records_[i].binds_fast = false;
  }
}

bool NodeGranules::lives(BlockIndex block) const noexcept {
  const auto per_block = kGranule / arena_.granule();
  for (auto i = block * per_block; i < (block + 1) * per_block && i < top_; ++i)
    if (records_[i].live != 0) return true;
  return false;
}

}  // namespace sentinel
