// Best-fit allocation within whole granules that it borrows from another heap, and gives back once
// they are entirely free. So nothing in them shares a granule with what the other heap hands out.
// Not thread-safe; the owner locks.
#pragma once

#include <cstdint>

#include "alloc/heap.h"

namespace sentinel {

class GranuleHeap {
 public:
  // `lender` lives longer than this.
  GranuleHeap(Heap& lender, std::uint64_t granule) : lender_(lender), granule_(granule) {}

  // As Heap::allocate. An alignment above the granule's is not supported.
  std::uintptr_t allocate(std::uint64_t bytes, std::uint64_t alignment);
  void free(std::uintptr_t address, std::uint64_t bytes);

  std::uint64_t in_use() const { return borrowed_.in_use(); }
  bool valid() const { return borrowed_.valid(); }

 private:
  Heap& lender_;
  Heap borrowed_;  // no granule of it is entirely free between two calls
  std::uint64_t granule_;
};

}  // namespace sentinel
