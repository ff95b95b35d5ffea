// The gaps between a storage's uses, in which it need not be in fast memory: what every policy that
// moves or makes again chooses from.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/step/storage.h"
#include "sentinel/machine.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

struct IdleGap {
  std::uint32_t storage = 0;        // index into storages()
  std::uint32_t use = 0, next = 0;  // positions; next >= ops: a use in the following step
  std::uint64_t bytes = 0;
  // Written since its last gap ended (or since the step began, cyclically), or on tiers of which
  // none keeps a copy.
  bool dirty = true;
  bool needed = true;  // the next use reads it; if not, nothing has to be fetched
};

// Every gap with at least one whole op between its uses, of every storage, by (storage, use).
// The gap of a persistent or carried storage across the step's end is included.
std::vector<IdleGap> idle_gaps(const Profile&, const std::vector<Storage>&, const Machine&);

}  // namespace sentinel::plan
