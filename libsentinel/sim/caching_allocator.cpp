// Splits and merges blocks of segments by PyTorch's rules.
#include "sim/caching_allocator.h"

#include <iterator>

#include "base/units.h"

namespace sentinel::sim {
namespace {

constexpr std::uint64_t kRound = 512;
constexpr std::uint64_t kLargestSmall = 1_MiB;
constexpr std::uint64_t kSmallSegment = 2_MiB;
constexpr std::uint64_t kSharedSegment = 20_MiB;  // for large requests below:
constexpr std::uint64_t kLeastOwnSegment = 10_MiB;
constexpr std::uint64_t kSegmentRound = 2_MiB;

std::uint64_t segment_bytes(std::uint64_t bytes) {
  if (bytes <= kLargestSmall) return kSmallSegment;
  if (bytes < kLeastOwnSegment) return kSharedSegment;
  return round_up(bytes, kSegmentRound);
}

bool splits(std::uint64_t rest, bool small) {
  return small ? rest >= kRound : rest > kLargestSmall;
}

}  // namespace

// The smallest free chunk that holds so much, or a new segment; no longer free.
CachingAllocator::Chunks::iterator CachingAllocator::take(std::uint64_t bytes, bool small) {
  Pool& free = small ? small_ : large_;
  const auto fit = free.lower_bound({bytes, 0});
  if (fit == free.end()) {
    const auto made =
        chunks_.emplace(end_, Chunk{.bytes = segment_bytes(bytes), .small = small, .first = true});
    end_ += made.first->second.bytes;
    return made.first;
  }
  const auto chunk = chunks_.find(fit->second);
  free.erase(fit);
  chunk->second.free = false;
  return chunk;
}

std::uint64_t CachingAllocator::allocate(std::uint64_t bytes) {
  bytes = round_up(bytes, kRound);
  const bool small = bytes <= kLargestSmall;
  const auto chunk = take(bytes, small);
  const std::uint64_t rest = chunk->second.bytes - bytes;
  if (splits(rest, small)) {
    chunk->second.bytes = bytes;
    chunks_.emplace(chunk->first + bytes, Chunk{.bytes = rest, .small = small, .free = true});
    (small ? small_ : large_).emplace(rest, chunk->first + bytes);
  }
  return chunk->first;
}

// Both free; the left one grows.
CachingAllocator::Chunks::iterator CachingAllocator::merge(Chunks::iterator left,
                                                           Chunks::iterator right) {
  left->second.bytes += right->second.bytes;
  chunks_.erase(right);
  return left;
}

void CachingAllocator::free(std::uint64_t address) {
  auto chunk = chunks_.find(address);
  chunk->second.free = true;
  Pool& free = pool(chunk->second);
  const auto joins = [](const auto& left, const auto& right) {
    return left->second.free && !right->second.first;
  };
  if (const auto next = std::next(chunk);
      next != chunks_.end() && next->second.free && joins(chunk, next)) {
    free.erase({next->second.bytes, next->first});
    merge(chunk, next);
  }
  if (chunk != chunks_.begin() && joins(std::prev(chunk), chunk)) {
    const auto before = std::prev(chunk);
    free.erase({before->second.bytes, before->first});
    chunk = merge(before, chunk);
  }
  free.emplace(chunk->second.bytes, chunk->first);
}

}  // namespace sentinel::sim
