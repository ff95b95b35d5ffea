// Live tensors by address: open addressing with linear probing and backward-shift deletion, so that
// a lookup in the steady state touches one or two cache lines. Not thread-safe; the owner locks.
#pragma once

#include <cstdint>
#include <vector>

namespace sentinel {

struct LiveTensor {
  static constexpr std::uint32_t kUnplanned = ~0u;

  std::uintptr_t address = 0;  // 0: no entry
  std::uint64_t bytes = 0;     // as asked for
  std::uint64_t reserved = 0;  // of the heap; 0 for a tensor in its planned place
  std::uint64_t birth = 0;     // ordinal among all allocations of the process
  // Its role in a plan, whose placement it has unless it lies in the heap; a slot is a tensor's id.
  std::uint32_t plan = kUnplanned, slot = kUnplanned;
  std::uint32_t record = ~0u;  // index in the step being recorded
  bool late = false;  // in granules that hold only what began under a plan, without a place in it
  bool wanted = true;          // in fast memory, as far as the plan goes
  bool held = false;           // where nothing guards: no op has named it, so that it may not leave
  bool pinned = false;         // there: stays whatever names it, for its address is known elsewhere

  bool in_its_place() const { return slot != kUnplanned && reserved == 0; }
};

class AddressTable {
 public:
  AddressTable();

  // The address must not be present. The reference is good until the next insert or erase.
  LiveTensor& insert(const LiveTensor& tensor);
  LiveTensor* find(std::uintptr_t address);
  void erase(std::uintptr_t address);
  std::size_t size() const { return size_; }

  template <class F>
  void for_each(F&& f) {
    for (auto& entry : entries_)
      if (entry.address != 0) f(entry);
  }

 private:
  std::size_t home(std::uintptr_t address) const;
  void grow();

  std::vector<LiveTensor> entries_;  // power of two, at most half full
  std::size_t size_ = 0;
};

}  // namespace sentinel
