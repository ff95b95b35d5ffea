// Probes, inserts, erases and grows the table of live tensors; an erased entry's successors
// shift back.
#include "alloc/address_table.h"

#include <utility>

namespace sentinel {

AddressTable::AddressTable() : entries_(1 << 12) {}

std::size_t AddressTable::home(std::uintptr_t address) const {
  return (address >> 6) * 0x9E3779B97F4A7C15ull >> 20 & (entries_.size() - 1);
}

LiveTensor& AddressTable::insert(const LiveTensor& tensor) {
  if (2 * (size_ + 1) > entries_.size()) grow();
  auto at = home(tensor.address);
  while (entries_[at].address != 0) at = (at + 1) & (entries_.size() - 1);
  ++size_;
  return entries_[at] = tensor;
}

LiveTensor* AddressTable::find(std::uintptr_t address) {
  for (auto at = home(address); entries_[at].address != 0; at = (at + 1) & (entries_.size() - 1))
    if (entries_[at].address == address) return &entries_[at];
  return nullptr;
}

void AddressTable::erase(std::uintptr_t address) {
  const auto mask = entries_.size() - 1;
  auto hole = static_cast<std::size_t>(find(address) - entries_.data());
  for (auto at = (hole + 1) & mask; entries_[at].address != 0; at = (at + 1) & mask) {
    const bool may_fill = ((at - home(entries_[at].address)) & mask) >= ((at - hole) & mask);
    if (may_fill) entries_[std::exchange(hole, at)] = entries_[at];
  }
  entries_[hole] = {};
  --size_;
}

void AddressTable::grow() {
  auto old = std::exchange(entries_, std::vector<LiveTensor>(entries_.size() * 2));
  size_ = 0;
  for (const auto& entry : old)
    if (entry.address != 0) insert(entry);
}

}  // namespace sentinel
