// Replays a step's allocations until they repeat, and notes each tensor's addresses.
#include "sim/addresses.h"

#include <algorithm>

namespace sentinel::sim {

Addresses::Addresses(const Profile& profile)
    : operands_(profile.ops.size()), births_(profile.ops.size()), deaths_(profile.ops.size()) {
  index(profile, plan::storages(profile));
  for (std::uint32_t s : carried_) allocate(s);
  for (int i = 0; i < kWarmUp && step(); ++i) {
  }
}

void Addresses::index(const Profile& profile, const std::vector<plan::Storage>& storages) {
  const auto ops = static_cast<std::uint32_t>(profile.ops.size());
  for (std::uint32_t i = 0; i < storages.size(); ++i) {
    const plan::Storage& s = storages[i];
    ranges_.push_back({.bytes = s.bytes, .tensor = s.tensor});
    if (s.persistent || s.carried) carried_.push_back(i);
    if (!s.persistent) {
      births_[s.first % ops].push_back(i);
      deaths_[s.last % ops].push_back(i);
    }
    for (std::uint32_t use : s.uses) {
      const Op& op = profile.ops[use % ops];
      const TensorId t = s.at(use, ops);
      const bool in = std::ranges::binary_search(op.in, t),
                 out = std::ranges::binary_search(op.out, t);
      operands_[use % ops].push_back({i, in || !out, out});
    }
  }
}

bool Addresses::step() {
  bool changed = false;
  for (std::size_t k = 0; k < births_.size(); ++k) {
    for (std::uint32_t s : births_[k]) {
      const std::uint64_t before = ranges_[s].begin;
      allocate(s);
      changed |= ranges_[s].begin != before;
    }
    for (std::uint32_t s : deaths_[k]) free(s);
  }
  return changed;
}

void Addresses::allocate(std::uint32_t storage) {
  ranges_[storage].begin = allocator_.allocate(ranges_[storage].bytes);
}

void Addresses::free(std::uint32_t storage) { allocator_.free(ranges_[storage].begin); }

}  // namespace sentinel::sim
