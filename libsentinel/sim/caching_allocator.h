// Addresses as PyTorch's CUDA caching allocator gives them (c10/cuda/CUDACachingAllocator.cpp, as
// of PyTorch 1.8 to 2.x with default settings, one stream), so that policies that see addresses see
// realistic ones.
//
// Sizes are rounded up to 512 B. Requests up to 1 MiB are served from a small pool, others from a
// large one, each by best fit, ties by address. Where nothing fits, a segment is taken from the
// driver: 2 MiB for small requests, 20 MiB below 10 MiB, else the request rounded up to 2 MiB. What
// remains of a chunk is split off if it is at least 512 B (small pool) or more than 1 MiB (large).
// A freed chunk merges with its free neighbours of the same segment. Segments are never given back:
// unified memory does not run out of addresses.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace sentinel::sim {

class CachingAllocator {
 public:
  // Address of the first of at least `bytes` bytes, a multiple of 512. bytes > 0.
  std::uint64_t allocate(std::uint64_t bytes);
  void free(std::uint64_t address);  // of an allocation that lives

  std::uint64_t reserved_bytes() const { return end_; }  // in segments, which lie side by side

 private:
  struct Chunk {
    std::uint64_t bytes = 0;
    bool small = false, free = false;
    bool first = false;  // of its segment
  };
  using Chunks = std::map<std::uint64_t, Chunk>;                   // by address
  using Pool = std::set<std::pair<std::uint64_t, std::uint64_t>>;  // free: bytes, address

  Pool& pool(const Chunk& chunk) { return chunk.small ? small_ : large_; }
  Chunks::iterator take(std::uint64_t bytes, bool small);
  Chunks::iterator merge(Chunks::iterator left, Chunks::iterator right);

  Chunks chunks_;
  Pool small_, large_;
  std::uint64_t end_ = 0;
};

}  // namespace sentinel::sim
