// Which granules a tensor overlaps, and how many granules a set of tensors holds.
//
// A granule is the unit in which space is held and moved (Machine::granule_bytes). Tensors may
// share one, so bytes do not add up; *units* do: a unit is a maximal run of granules overlapped by
// exactly the same tensors. A unit is held while any of its tensors is.
//
// Two address spaces are covered: the plan's region (placements) and the arena of the persistent
// tensors (Tensor::offset). A persistent tensor without a known offset is taken to share its
// granules with nobody (Sentinel paper, end of section IV-B).
//
// A discarded tensor gives up its *whole* units, which lie wholly within it: what lies beside it in
// a granule of its ends may be another's, so those granules stay as they are. Where a granule is a
// page, all of a tensor's units count as whole.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sentinel/plan.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

using UnitId = Id<struct UnitTag>;

// Whether granules are so large that tensors have to share them: frames, not pages.
inline bool shares_granules(std::uint64_t granule_bytes) { return granule_bytes > 4096; }

class Footprint {
 public:
  // Tensors that are neither persistent nor placed get granules of their own.
  Footprint(const Profile&, std::span<const Placement>, std::uint64_t granule_bytes);

  std::size_t size() const { return bytes_.size(); }
  std::uint64_t bytes(UnitId unit) const { return bytes_[unit.index()]; }
  std::span<const UnitId> units(TensorId tensor) const { return units_[tensor.index()]; }
  std::span<const UnitId> whole(TensorId tensor) const {
    const Whole& whole = whole_[tensor.index()];
    return units(tensor).subspan(whole.first, whole.count);
  }
  bool is_whole(TensorId tensor, UnitId) const;
  std::uint64_t whole_bytes(TensorId) const;
  std::span<const TensorId> members(UnitId unit) const { return members_[unit.index()]; }
  std::uint64_t granule_bytes() const { return granule_; }

 private:
  struct Extent {
    TensorId tensor;
    std::uint64_t begin, end;              // granules
    std::uint64_t whole_begin, whole_end;  // those wholly within the tensor
  };
  struct Whole {
    std::uint32_t first = 0, count = 0;  // of the tensor's units
  };
  Extent extent(TensorId, std::uint64_t offset, std::uint64_t bytes) const;
  std::vector<Extent> region_extents(const Profile&, std::span<const Placement>) const;
  std::vector<Extent> arena_extents(const Profile&, std::span<const Placement>) const;
  void cut(std::vector<Extent> extents);
  void add_own_ends(TensorId);

  std::uint64_t granule_;
  std::vector<std::uint64_t> bytes_;
  std::vector<std::vector<UnitId>> units_;      // per tensor
  std::vector<Whole> whole_;                    // per tensor
  std::vector<std::vector<TensorId>> members_;  // per unit
};

// The units held by a changing set of tensors. hold() and drop() must pair up per tensor.
class Holding {
 public:
  explicit Holding(const Footprint& footprint)
      : footprint_(&footprint), holders_(footprint.size(), 0) {}

  void hold(TensorId);
  void drop(TensorId);
  void hold(UnitId);
  void drop(UnitId);
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t missing(TensorId) const;  // bytes that hold() would add
  std::uint64_t missing(std::span<const UnitId>) const;

 private:
  const Footprint* footprint_;
  std::vector<std::uint32_t> holders_;
  std::uint64_t bytes_ = 0;
};

}  // namespace sentinel::plan
