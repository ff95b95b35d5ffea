#include "plan/basis.h"

namespace sentinel::plan {

Basis::Basis(const Profile& p, const Machine& m)
    : profile(p),
      machine(m),
      storages(plan::storages(p)),
      storage_of(p.tensors.size(), UINT32_MAX),
      footprint(p, {}, m.granule_bytes),
      demand(plan::demand(p, storages, std::vector<bool>(storages.size(), true), footprint)),
      replay(p) {
  for (std::uint32_t i = 0; i < storages.size(); ++i) {
    storage_of[storages[i].tensor.index()] = i;
    if (storages[i].carried) storage_of[storages[i].carried->index()] = i;
  }
}

}  // namespace sentinel::plan
