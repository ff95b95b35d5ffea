// A tensor's addresses, as the framework's caching allocator gives them.
#pragma once

#include <cstdint>

#include "sentinel/profile.h"

namespace sentinel::sim {

struct AddressRange {
  std::uint64_t begin = 0, bytes = 0;
  TensorId tensor;
};

}  // namespace sentinel::sim
