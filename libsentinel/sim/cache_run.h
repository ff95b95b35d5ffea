// Fast memory as a direct-mapped, write-back hardware cache of a byte-addressable slow tier.
//
// The cache is exact for ranges of addresses: which address each byte of fast memory stands for,
// and whether it was written. An op passes over each of its tensors once. What misses is filled, on
// reads and writes alike, and what it replaces is written back if dirty. Costs are those of a
// tensor used in place in the slow tier (sim/simulator.h): per opening that misses, the latency and
// a page at the slow tier's read bandwidth, beyond what fast memory takes; a tensor's further
// openings of a page in the same op hit. Where an op opens fewer pages than the tensor has, so many
// less are filled and written back. Without counts, a pass reads or writes every byte once, at
// bandwidth.
#pragma once

#include <cstdint>
#include <map>

#include "sim/simulator.h"

namespace sentinel::sim {

class DirectMappedCache {
 public:
  explicit DirectMappedCache(std::uint64_t bytes) : bytes_(bytes) {}

  struct Misses {
    std::uint64_t filled = 0, written_back = 0;  // bytes
  };
  Misses access(std::uint64_t address, std::uint64_t bytes, bool write);

 private:
  struct Line {  // a range of cache bytes, by its begin
    std::uint64_t end = 0;
    std::uint64_t tag = 0;  // address / bytes_
    bool dirty = false;
  };
  void cut(std::uint64_t at);
  void join(std::uint64_t begin, std::uint64_t end);
  void pass(std::uint64_t begin, std::uint64_t end, std::uint64_t tag, bool write, Misses&);

  std::uint64_t bytes_;
  std::map<std::uint64_t, Line> lines_;
};

// Throws Error where the slow tier is not byte-addressable.
SimResult run_cached(const Profile&, const Machine&, const SimOptions&);

}  // namespace sentinel::sim
