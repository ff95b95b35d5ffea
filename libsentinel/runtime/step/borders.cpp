// Finds granules that several tensors share, and the ops at which these begin.
#include "runtime/step/borders.h"

#include <algorithm>
#include <limits>

namespace sentinel {

Borders::Borders(const Profile& profile, const Plan& plan)
    : granule_bytes_(plan.granule_bytes), granules_(profile.tensors.size()) {
  for (const auto& placement : plan.placements) {
    const auto pool = plan.groups[placement.group.index()].pool;
    if (pool != Pool::long_lived && pool != Pool::mixed) continue;  // the others never leave
    const auto& tensor = profile.tensors[placement.tensor.index()];
    if (tensor.bytes == 0) continue;
    const GranuleSpan range{placement.offset / granule_bytes_,
                            (placement.offset + tensor.bytes - 1) / granule_bytes_};
    granules_[placement.tensor.index()] = range;
    ++tensors_[range.first];
    if (range.last != range.first) ++tensors_[range.last];
    if (!tensor.alloc_op) continue;  // the step begins with it
    for (auto granule = range.first;; granule = range.last) {
      births_[granule].push_back(tensor.alloc_op->value);
      if (granule == range.last) break;
    }
  }
  std::erase_if(births_, [](const auto& entry) { return entry.second.size() < 2; });
  for (auto& [granule, births] : births_) std::ranges::sort(births);
}

Engine::Ends Borders::own_ends(TensorId tensor) const {
  const auto [first, last] = granules_[tensor.index()];
  const auto own = [this](std::uint64_t granule) {
    const auto found = tensors_.find(granule);
    return found != tensors_.end() && found->second == 1;
  };
  return {.first = own(first), .last = own(last)};
}

std::uint32_t Borders::next_birth(std::uint64_t granule, std::uint32_t from) const {
  constexpr auto kNever = std::numeric_limits<std::uint32_t>::max();
  const auto at = births_.find(granule);
  if (at == births_.end()) return kNever;
  const auto next = std::ranges::upper_bound(at->second, from);
  return next == at->second.end() ? kNever : *next;
}

}  // namespace sentinel
