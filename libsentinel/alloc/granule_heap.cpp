// Borrows granules where nothing fits, and gives back those in which nothing is left.
#include "alloc/granule_heap.h"

#include "base/units.h"

namespace sentinel {

std::uintptr_t GranuleHeap::allocate(std::uint64_t bytes, std::uint64_t alignment) {
  if (const auto address = borrowed_.allocate(bytes, alignment)) return address;
  const auto more = round_up(bytes, granule_);
  const auto granules = lender_.allocate(more, granule_);
  if (granules == 0) return 0;
  borrowed_.add(granules, more);
  return borrowed_.allocate(bytes, alignment);
}

void GranuleHeap::free(std::uintptr_t address, std::uint64_t bytes) {
  borrowed_.free(address, bytes);
  const auto [granules, past] = borrowed_.take_whole(address, granule_);
  if (granules < past) lender_.free(granules, past - granules);
}

}  // namespace sentinel
