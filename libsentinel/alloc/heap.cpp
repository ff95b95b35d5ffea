// Finds the best fit for an allocation and joins what is freed with its free neighbours.
#include "alloc/heap.h"

#include <iterator>

#include "base/units.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kLine = 64;
constexpr std::uint64_t kPage = 4096;

}  // namespace

std::uint64_t natural_alignment(std::uint64_t bytes, std::uint64_t granule) {
  if (bytes >= granule && (round_up(bytes, granule) - bytes) * 8 <= bytes) return granule;
  return bytes >= kPage ? kPage : kLine;
}

Heap::Heap(std::uintptr_t begin, std::uint64_t bytes) : range_bytes_(bytes) {
  insert(begin, bytes);
}

void Heap::insert(std::uintptr_t address, std::uint64_t bytes) {
  free_.emplace(address, bytes);
  by_size_.emplace(bytes, address);
}

Heap::Free::iterator Heap::erase(Free::iterator it) {
  by_size_.erase({it->second, it->first});
  return free_.erase(it);
}

// The smallest range that holds an aligned block. Ranges of at least bytes + alignment always do,
// so the search inspects only the few candidates below that.
Heap::Free::iterator Heap::fit(std::uint64_t bytes, std::uint64_t alignment) {
  for (auto it = by_size_.lower_bound({bytes, 0}); it != by_size_.end(); ++it) {
    const auto start = round_up(it->second, alignment);
    if (start + bytes <= it->second + it->first) return free_.find(it->second);
  }
  return free_.end();
}

std::uintptr_t Heap::allocate(std::uint64_t bytes, std::uint64_t alignment) {
  bytes = round_up(bytes, kLine);
  const auto it = fit(bytes, alignment);
  if (it == free_.end()) return 0;
  const auto [range, range_bytes] = *it;
  const auto start = round_up(range, alignment);
  erase(it);
  if (start > range) insert(range, start - range);
  if (start + bytes < range + range_bytes)
    insert(start + bytes, range + range_bytes - start - bytes);
  in_use_ += bytes;
  return start;
}

void Heap::free(std::uintptr_t address, std::uint64_t bytes) {
  bytes = round_up(bytes, kLine);
  in_use_ -= bytes;
  auto next = free_.lower_bound(address);
  if (next != free_.end() && next->first == address + bytes) {
    bytes += next->second;
    next = erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == address) {
      address = previous->first;
      bytes += previous->second;
      erase(previous);
    }
  }
  insert(address, bytes);
}

void Heap::add(std::uintptr_t address, std::uint64_t bytes) {
  range_bytes_ += bytes;
  in_use_ += bytes;
  free(address, bytes);
}

std::pair<std::uintptr_t, std::uintptr_t> Heap::take_whole(std::uintptr_t address,
                                                           std::uint64_t granule) {
  const auto it = std::prev(free_.upper_bound(address));
  const auto [range, range_bytes] = *it;
  const auto first = round_up(range, granule), past = (range + range_bytes) / granule * granule;
  if (first >= past) return {};
  erase(it);
  if (first > range) insert(range, first - range);
  if (past < range + range_bytes) insert(past, range + range_bytes - past);
  range_bytes_ -= past - first;
  return {first, past};
}

bool Heap::valid() const {
  std::uint64_t sum = 0;
  std::uintptr_t end = 0;
  for (const auto& [address, bytes] : free_) {
    if (bytes == 0 || (end != 0 && address <= end) || !by_size_.contains({bytes, address}))
      return false;
    end = address + bytes;
    sum += bytes;
  }
  return free_.size() == by_size_.size() && sum + in_use_ == range_bytes_;
}

}  // namespace sentinel
