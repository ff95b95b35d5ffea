// How a total of fast memory is divided among jobs. Pure and deterministic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sentinel {

struct CurvePoint {
  std::uint64_t bytes = 0;
  double slowdown = 1;  // step time within these bytes, relative to that within all it could use
};

struct Need {
  std::uint64_t least = 0;        // below which the job cannot work
  std::uint64_t most = 0;         // beyond which it gains nothing; at least `least`
  double priority = 1;            // weight of its gain, above 0
  std::vector<CurvePoint> curve;  // by bytes, ascending; empty: not known
};

// What each should have: from `least` to `most`, whole multiples of `grain` but for these two, and
// at most `total` together. The sum of what is least must be at most `total`.
std::vector<std::uint64_t> divide(std::uint64_t total, std::span<const Need>, std::uint64_t grain);

}  // namespace sentinel
