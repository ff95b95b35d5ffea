// Computes for each op the bytes that it must hold, and those that never move.
#include <algorithm>

#include "plan/schedule/schedule.h"

namespace sentinel::plan {
namespace {

template <class Holdable>  // TensorId or UnitId
struct Changes {
  std::vector<std::vector<Holdable>> begin, end;  // per op: at its start, at its end
  explicit Changes(std::size_t ops) : begin(ops), end(ops) {}

  void apply_begin(Holding& holding, std::size_t op) const {
    for (Holdable h : begin[op]) holding.hold(h);
  }
  void apply_end(Holding& holding, std::size_t op) const {
    for (Holdable h : end[op]) holding.drop(h);
  }
};

// Calls visit(first, last, position) for the parts [first, last] of a life that may cross the
// step's end; `position` tells which step's instance it is.
template <class Visit>
void for_each_part(std::uint32_t first, std::uint32_t last, std::uint32_t ops, Visit visit) {
  if (first < ops) visit(first, std::min(last, ops - 1), first);
  if (last >= ops) visit(first < ops ? 0 : first - ops, last - ops, ops);
}

class DemandSweep {
 public:
  DemandSweep(const Profile& profile, const Footprint& footprint)
      : footprint_(footprint),
        ops_(static_cast<std::uint32_t>(profile.ops.size())),
        tensors_(ops_),
        units_(ops_) {}

  void add(const Storage& s, std::uint32_t first, std::uint32_t last) {
    for_each_part(first, last, ops_, [&](auto from, auto to, auto position) {
      tensors_.begin[from].push_back(s.at(position, ops_));
      tensors_.end[to].push_back(s.at(position, ops_));
    });
  }

  void add_crowds(const Storage& s) {
    for (UnitId u : footprint_.units(s.tensor)) {
      if (footprint_.members(u).size() <= kCrowd) continue;
      for_each_part(s.first, s.last, ops_, [&](auto from, auto to, auto) {
        units_.begin[from].push_back(u);
        units_.end[to].push_back(u);
      });
    }
  }

  std::vector<std::uint64_t> held() const {
    Holding holding(footprint_);
    std::vector<std::uint64_t> bytes(ops_);
    for (std::uint32_t k = 0; k < ops_; ++k) {
      tensors_.apply_begin(holding, k);
      units_.apply_begin(holding, k);
      bytes[k] = holding.bytes();
      tensors_.apply_end(holding, k);
      units_.apply_end(holding, k);
    }
    return bytes;
  }

 private:
  const Footprint& footprint_;
  std::uint32_t ops_;
  Changes<TensorId> tensors_;
  Changes<UnitId> units_;
};

}  // namespace

Demand demand(const Profile& profile, const std::vector<Storage>& storages,
              const std::vector<bool>& movable, const Footprint& footprint) {
  DemandSweep all(profile, footprint), must(profile, footprint), reserved(profile, footprint);
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const Storage& s = storages[i];
    all.add(s, s.first, s.last);
    if (movable[i]) {
      for (std::uint32_t use : s.uses) must.add(s, use, use);
      must.add_crowds(s);
      reserved.add_crowds(s);
    } else {
      must.add(s, s.first, s.last);
      reserved.add(s, s.first, s.last);
    }
  }
  return {all.held(), must.held(), reserved.held()};
}

}  // namespace sentinel::plan
