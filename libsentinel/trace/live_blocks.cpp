// Keeps live blocks in the order of their addresses, and finds those that a new one covers.
#include "trace/live_blocks.h"

#include <algorithm>
#include <iterator>

namespace sentinel {
namespace {

// A block of no bytes still has an address of its own.
std::uint64_t last_byte(std::uint64_t address, std::uint64_t bytes) {
  const auto more = std::max<std::uint64_t>(bytes, 1) - 1;
  return more > UINT64_MAX - address ? UINT64_MAX : address + more;
}

}  // namespace

std::vector<TensorId> LiveBlocks::clear(std::uint64_t address, std::uint64_t bytes) {
  std::vector<TensorId> lost;
  const auto last = last_byte(address, bytes);
  auto at = blocks_.lower_bound(address);
  if (at != blocks_.begin() && std::prev(at)->second.last >= address) --at;
  while (at != blocks_.end() && at->first <= last) {
    lost.push_back(at->second.tensor);
    at = blocks_.erase(at);
  }
  return lost;
}

void LiveBlocks::begin(std::uint64_t address, std::uint64_t bytes, TensorId tensor) {
  blocks_.insert_or_assign(address, Block{last_byte(address, bytes), tensor});
}

std::optional<TensorId> LiveBlocks::end(std::uint64_t address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return std::nullopt;
  const auto tensor = found->second.tensor;
  blocks_.erase(found);
  return tensor;
}

}  // namespace sentinel
