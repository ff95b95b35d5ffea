// The unit of what moves between host memory and an SSD, and the number of one in its arena.
#pragma once

#include <cstdint>

namespace sentinel {

constexpr std::uint64_t kGranule = 2u << 20;

using BlockIndex = std::uint32_t;

}  // namespace sentinel
