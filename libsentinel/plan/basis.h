// What planning needs to know of a step whose tensors lie on granules of their own, worked out once
// for any number of plans.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/footprint.h"
#include "plan/replay.h"
#include "plan/schedule.h"
#include "plan/storage.h"
#include "sentinel/machine.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

// Immutable once made, so that plans may be made from it at once in several threads. The profile
// and the machine must outlive it.
struct Basis {
  Basis(const Profile&, const Machine&);

  const Profile& profile;
  const Machine& machine;
  std::vector<Storage> storages;
  std::vector<std::uint32_t> storage_of;  // per tensor; UINT32_MAX: none
  Footprint footprint;
  Demand demand;  // where everything may move
  Replay replay;
};

}  // namespace sentinel::plan
