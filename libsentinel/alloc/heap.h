// Best-fit allocation of addresses, with coalescing. Hands out addresses only: it never touches the
// memory they name, so it can manage a range whose pages are absent, guarded or on disk.
// Not thread-safe; the owner locks. Metadata lies outside the range.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace sentinel {

// A tensor's alignment: whole granules for tensors that fill them well, pages for other large ones
// (their edges share a granule with a neighbour of the same age), cache lines for the rest.
std::uint64_t natural_alignment(std::uint64_t bytes, std::uint64_t granule);

class Heap {
 public:
  Heap() = default;  // of nothing, until add()
  Heap(std::uintptr_t begin, std::uint64_t bytes);

  // 0 when no range is left. `bytes` is rounded up to 64.
  std::uintptr_t allocate(std::uint64_t bytes, std::uint64_t alignment);
  void free(std::uintptr_t address, std::uint64_t bytes);

  // Hands out from this range too from now on.
  void add(std::uintptr_t address, std::uint64_t bytes);
  // Forgets the whole granules of the free range at `address`: the first, and one past the last.
  std::pair<std::uintptr_t, std::uintptr_t> take_whole(std::uintptr_t address,
                                                       std::uint64_t granule);

  std::uint64_t in_use() const { return in_use_; }
  bool valid() const;  // the invariants below, checked in tests and debug builds

 private:
  using Free =
      std::map<std::uintptr_t, std::uint64_t>;  // address -> bytes; disjoint, never adjacent

  void insert(std::uintptr_t address, std::uint64_t bytes);
  Free::iterator erase(Free::iterator it);
  Free::iterator fit(std::uint64_t bytes, std::uint64_t alignment);

  Free free_;
  std::set<std::pair<std::uint64_t, std::uintptr_t>> by_size_;  // the same ranges as free_
  std::uint64_t in_use_ = 0;  // bytes in use + sum(free_) == range
  std::uint64_t range_bytes_ = 0;
};

}  // namespace sentinel
