// Computes storages, footprint, demand and replays of a step in the order in which they depend.
#include "plan/schedule/basis.h"

#include <utility>

namespace sentinel::plan {

Basis::Basis(const Profile& p, const Machine& m, Layout l)
    : profile(p),
      machine(m),
      storages(plan::storages(p)),
      storage_of(p.tensors.size(), UINT32_MAX),
      layout(std::move(l)),
      movable(find_movable(p, storages, layout)),
      footprint(p, layout.placements, m.granule_bytes),
      demand(plan::demand(p, storages, movable, footprint)),
      replay(p) {
  for (std::uint32_t i = 0; i < storages.size(); ++i) {
    storage_of[storages[i].tensor.index()] = i;
    if (storages[i].carried) storage_of[storages[i].carried->index()] = i;
  }
}

}  // namespace sentinel::plan
