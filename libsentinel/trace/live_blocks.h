// Which recorded tensor lies where, for recordings that may lack frees.
//
// Two live blocks never share a byte. Where a new one lies on another, or the allocator gives the
// memory below it back, the other one had been freed and nobody recorded it: it is *lost*.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "sentinel/ids.h"

namespace sentinel {

class LiveBlocks {
 public:
  // The tensors that these bytes prove to be gone; they are live no longer.
  std::vector<TensorId> clear(std::uint64_t address, std::uint64_t bytes);
  // After clear() of the same bytes.
  void begin(std::uint64_t address, std::uint64_t bytes, TensorId);
  // The tensor that ends, where one begins exactly there.
  std::optional<TensorId> end(std::uint64_t address);

  bool contains(std::uint64_t address) const { return blocks_.contains(address); }

 private:
  struct Block {
    std::uint64_t last;  // byte
    TensorId tensor;
  };
  std::map<std::uint64_t, Block> blocks_;  // by their first byte
};

}  // namespace sentinel
