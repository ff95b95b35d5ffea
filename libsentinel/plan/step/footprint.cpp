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
    : granule_(granule_bytes), units_(profile.tensors.size()), whole_(profile.tensors.size()) {
  if (granule_bytes == 0) throw Error("a machine's granule_bytes must not be 0");
  cut(region_extents(profile, placements));
  cut(arena_extents(profile, placements));
}

bool Footprint::is_whole(TensorId tensor, UnitId unit) const {
  return std::ranges::find(whole(tensor), unit) != whole(tensor).end();
}

std::uint64_t Footprint::whole_bytes(TensorId tensor) const {
  std::uint64_t sum = 0;
  for (UnitId u : whole(tensor)) sum += bytes(u);
  return sum;
}

Footprint::Extent Footprint::extent(TensorId tensor, std::uint64_t offset,
                                    std::uint64_t bytes) const {
  const std::uint64_t begin = offset / granule_, end = (offset + bytes + granule_ - 1) / granule_;
  if (!shares_granules(granule_)) return {tensor, begin, end, begin, end};
  const std::uint64_t first = (offset + granule_ - 1) / granule_;
  return {tensor, begin, end, first, std::max(first, (offset + bytes) / granule_)};
}

std::vector<Footprint::Extent> Footprint::region_extents(
    const Profile& profile, std::span<const Placement> placements) const {
  std::vector<Extent> extents;
  for (const Placement& p : placements) {
    if (p.tensor.index() >= profile.tensors.size()) continue;
    const Tensor& tensor = profile.tensors[p.tensor.index()];
    if (!occupies(tensor)) continue;
    extents.push_back(extent(p.tensor, p.offset, tensor.bytes));
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
    extents.push_back(extent(TensorId(t), *tensor.offset, tensor.bytes));
    end = std::max(end, extents.back().end);
  }
  for (std::size_t t : nowhere) {
    extents.push_back(extent(TensorId(t), end * granule_, profile.tensors[t].bytes));
    end = extents.back().end;
  }
  return extents;
}

// Cuts the extents of one address space into units: between two neighbouring ends of extents the
// set of overlapping tensors does not change. A tensor's first and last granule are units of their
// own where they are not wholly within it.
void Footprint::cut(std::vector<Extent> extents) {
  std::vector<std::uint64_t> ends;
  for (const Extent& e : extents) {
    ends.insert(ends.end(), {e.begin, e.end});
    if (e.whole_begin < e.whole_end) ends.insert(ends.end(), {e.whole_begin, e.whole_end});
  }
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
      auto& mine = units_[e.tensor.index()];
      if (ends[at] >= e.whole_begin && ends[at] < e.whole_end) {
        Whole& whole = whole_[e.tensor.index()];
        if (whole.count++ == 0) whole.first = static_cast<std::uint32_t>(mine.size());
      }
      mine.push_back(unit);
      members_[unit.index()].push_back(e.tensor);
    }
  }
  for (const Extent& e : extents) add_own_ends(e.tensor);
}

// An end that no other tensor lies in is given up as well.
void Footprint::add_own_ends(TensorId tensor) {
  const auto& mine = units_[tensor.index()];
  Whole& whole = whole_[tensor.index()];
  const auto own = [&](std::size_t i) { return members_[mine[i].index()].size() == 1; };
  if (whole.count == 0) {
    while (whole.first < mine.size() && !own(whole.first)) ++whole.first;
    if (whole.first == mine.size()) return;
    whole.count = 1;
  }
  while (whole.first > 0 && own(whole.first - 1)) --whole.first, ++whole.count;
  while (whole.first + whole.count < mine.size() && own(whole.first + whole.count)) ++whole.count;
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

std::uint64_t Holding::missing(TensorId tensor) const { return missing(footprint_->units(tensor)); }

std::uint64_t Holding::missing(std::span<const UnitId> units) const {
  std::uint64_t sum = 0;
  for (UnitId u : units)
    if (holders_[u.index()] == 0) sum += footprint_->bytes(u);
  return sum;
}

}  // namespace sentinel::plan
