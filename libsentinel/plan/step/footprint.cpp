// Counts the granules of tensor sets, with those that neighbours share.
#include "plan/step/footprint.h"

#include <algorithm>

#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel::plan {
namespace {

bool occupies(const Tensor& tensor) { return !tensor.foreign && tensor.bytes > 0; }

std::vector<bool> placed_tensors(std::size_t tensors, std::span<const Placement> placements) {
  std::vector<bool> placed(tensors, false);
  for (const Placement& p : placements)
    if (p.tensor.index() < tensors) placed[p.tensor.index()] = true;
  return placed;
}

}  // namespace

Footprint::Footprint(const Profile& profile, std::span<const Placement> placements,
                     std::uint64_t granule_bytes)
    : granule_(granule_bytes), units_(profile.tensors.size()) {
  if (granule_bytes == 0) throw Error("a machine's granule_bytes must not be 0");
  cut(region_extents(profile, placements));
  cut(arena_extents(profile, placements));
}

std::vector<Footprint::Extent> Footprint::region_extents(
    const Profile& profile, std::span<const Placement> placements) const {
  std::vector<Extent> extents;
  for (const Placement& p : placements) {
    if (p.tensor.index() >= profile.tensors.size()) continue;
    const Tensor& tensor = profile.tensors[p.tensor.index()];
    if (!occupies(tensor)) continue;
    extents.push_back(
        {p.tensor, p.offset / granule_, (p.offset + tensor.bytes + granule_ - 1) / granule_});
  }
  return extents;
}

std::vector<Footprint::Extent> Footprint::arena_extents(
    const Profile& profile, std::span<const Placement> placements) const {
  const auto placed = placed_tensors(profile.tensors.size(), placements);
  std::vector<Extent> extents;
  std::uint64_t end = 0;
  std::vector<std::size_t> nowhere;
  for (std::size_t t = 0; t < profile.tensors.size(); ++t) {
    const Tensor& tensor = profile.tensors[t];
    if (!occupies(tensor) || placed[t]) continue;
    if (!tensor.offset || tensor.alloc_op || tensor.free_op) {
      nowhere.push_back(t);
      continue;
    }
    const std::uint64_t last = *tensor.offset + tensor.bytes;
    extents.push_back({TensorId(t), *tensor.offset / granule_, (last + granule_ - 1) / granule_});
    end = std::max(end, extents.back().end);
  }
  for (std::size_t t : nowhere) {
    const std::uint64_t granules = (profile.tensors[t].bytes + granule_ - 1) / granule_;
    extents.push_back({TensorId(t), end, end + granules});
    end += granules;
  }
  return extents;
}

// Cuts the extents of one address space into units: between two neighbouring ends of extents the
// set of overlapping tensors does not change.
void Footprint::cut(std::vector<Extent> extents) {
  std::vector<std::uint64_t> ends;
  for (const Extent& e : extents) ends.insert(ends.end(), {e.begin, e.end});
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  const std::size_t base = bytes_.size();
  for (std::size_t i = 0; i + 1 < ends.size(); ++i)
    bytes_.push_back((ends[i + 1] - ends[i]) * granule_);
  members_.resize(bytes_.size());
  for (const Extent& e : extents) {
    auto at = std::lower_bound(ends.begin(), ends.end(), e.begin) - ends.begin();
    for (; ends[at] < e.end; ++at) {
      const UnitId unit(base + static_cast<std::size_t>(at));
      units_[e.tensor.index()].push_back(unit);
      members_[unit.index()].push_back(e.tensor);
    }
  }
}

void Holding::hold(UnitId unit) {
  if (holders_[unit.index()]++ == 0) bytes_ += footprint_->bytes(unit);
}

void Holding::drop(UnitId unit) {
  if (--holders_[unit.index()] == 0) bytes_ -= footprint_->bytes(unit);
}

void Holding::hold(TensorId tensor) {
  for (UnitId u : footprint_->units(tensor)) hold(u);
}

void Holding::drop(TensorId tensor) {
  for (UnitId u : footprint_->units(tensor)) drop(u);
}

std::uint64_t Holding::missing(TensorId tensor) const {
  std::uint64_t sum = 0;
  for (UnitId u : footprint_->units(tensor))
    if (holders_[u.index()] == 0) sum += footprint_->bytes(u);
  return sum;
}

std::uint64_t Holding::sole(TensorId tensor) const {
  std::uint64_t sum = 0;
  for (UnitId u : footprint_->units(tensor))
    if (holders_[u.index()] == 1) sum += footprint_->bytes(u);
  return sum;
}

}  // namespace sentinel::plan
