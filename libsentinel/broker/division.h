// How a total of fast memory is divided among jobs. Pure and deterministic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sentinel {

struct CurvePoint {
  std::uint64_t bytes = 0;
  double slowdown = 1;  // step time within these bytes, relative to that within all it could use
  double drive = 0;     // part of that time in which its moves keep the drive busy
};

struct Need {
  std::uint64_t least = 0;        // below which the job cannot work
  std::uint64_t most = 0;         // beyond which it gains nothing; at least `least`
  std::uint64_t usual = 0;        // holds more in peaks alone; 0: not known, or it has no peaks
  std::uint64_t training = 0;     // of which it is a rank; 0: it computes alone
  std::uint32_t ranks = 1;        // that compute together, and are of no use one by one
  double priority = 1;            // weight of its gain, above 0
  std::vector<CurvePoint> curve;  // by bytes, ascending; empty: not known
};

// What each should have: from `least` to `most`, whole multiples of `grain` but for these two, and
// at most `total` together. The sum of what is least must be at most `total`.
std::vector<std::uint64_t> divide(std::uint64_t total, std::span<const Need>, std::uint64_t grain);

// A job holds its base all the time, and plans for more: what it holds beyond in its peaks is lent.
struct Share {
  std::uint64_t base = 0, most = 0;
  std::uint64_t beyond() const { return most - base; }
};

// What has to be kept for leases: all of the largest, and half of all of them, for each job is in
// its peaks for half of its time.
std::uint64_t lease_pool(std::span<const Share>);

// The same as divide() where all needs fit. Else jobs plan for more than there is together, as far
// as their bases and the pool for their leases fit into `total`: each for nearly all that it could
// use, or, where that is too much, by divide() of as much as fits.
std::vector<Share> share(std::uint64_t total, std::span<const Need>, std::uint64_t grain);

// Jobs share a drive as well. Of its time, the part that each job's plan may count on within so
// many bytes: what the others leave, and at least an equal part among those that use it. A job
// whose curve is not known is taken to use none.
std::vector<double> drive_parts(std::span<const Need>, std::span<const std::uint64_t> bytes);

}  // namespace sentinel
