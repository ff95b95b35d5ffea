// The options of a NumaEngine. Values only: nothing here looks at the machine.
#pragma once

#include <cstdint>

#include "engine/host/topology.h"

namespace sentinel {

struct NumaEngineOptions {
  NodeTiers nodes;
  std::uint64_t granule_bytes = 2u << 20;  // or 4096
  std::uint64_t arena_bytes = 0;           // addresses, a multiple of 2 MiB
};

}  // namespace sentinel
