// How many openings the definition of the window says, for accesses in a random order.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "capture/synthetic_source.h"
#include "unit/capture/fault_fixture.h"

namespace sentinel {

inline std::vector<std::size_t> random_order(std::size_t length, std::size_t pages, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::size_t> order(length);
  for (std::size_t& page : order) page = random() % pages;
  return order;
}

// What the definition says, by the source that is told its accesses.
inline std::uint64_t defined(const std::vector<std::size_t>& order, std::uint32_t window) {
  SyntheticSource model(window);
  const ArmRange all{0x100000, 1000 * kPage, 1, 0};
  model.arm({&all, 1});
  for (const std::size_t page : order) {
    const SyntheticSource::Access access{0x100000 + page * kPage};
    model.play({&access, 1});
  }
  std::vector<PageCount> counts;
  model.drain(counts);
  return counts.empty() ? 0 : counts[0].reads;
}

}  // namespace sentinel
