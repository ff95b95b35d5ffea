// What planning needs to know of a step, worked out once for any number of plans. What a layout
// does not place lies on granules of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/layout/layout.h"
#include "plan/schedule/schedule.h"
#include "plan/step/footprint.h"
#include "plan/step/replay.h"
#include "plan/step/storage.h"
#include "sentinel/machine.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

// Immutable once made, so that plans may be made from it at once in several threads. The profile
// and the machine must outlive it.
struct Basis {
  Basis(const Profile&, const Machine&, Layout = {});

  const Profile& profile;
  const Machine& machine;
  std::vector<Storage> storages;
  std::vector<std::uint32_t> storage_of;  // per tensor; UINT32_MAX: none
  Layout layout;
  std::vector<bool> movable;  // per storage
  Footprint footprint;
  Demand demand;
  Replay replay;
};

}  // namespace sentinel::plan
