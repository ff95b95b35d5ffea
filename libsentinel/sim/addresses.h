// The tensors of a step as ranges of addresses, as the framework's caching allocator gives them.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/step/storage.h"
#include "sentinel/profile.h"
#include "sim/address_range.h"
#include "sim/caching_allocator.h"

namespace sentinel::sim {

class Addresses {
 public:
  struct Operand {
    std::uint32_t storage = 0;
    bool read = false, written = false;
  };

  // The allocator has then seen as many steps as it takes until each gives the same addresses as
  // the one before (at most kWarmUp), and holds what lives across steps.
  explicit Addresses(const Profile&);

  std::size_t size() const { return ranges_.size(); }
  const AddressRange& range(std::uint32_t storage) const { return ranges_[storage]; }
  const std::vector<Operand>& operands(OpId op) const { return operands_[op.index()]; }
  const std::vector<std::uint32_t>& carried() const { return carried_; }  // alive between steps
  const std::vector<std::uint32_t>& births(OpId op) const { return births_[op.index()]; }
  const std::vector<std::uint32_t>& deaths(OpId op) const { return deaths_[op.index()]; }

  void allocate(std::uint32_t storage);
  void free(std::uint32_t storage);
  std::uint64_t reserved_bytes() const { return allocator_.reserved_bytes(); }

 private:
  static constexpr int kWarmUp = 8;

  void index(const Profile&, const std::vector<plan::Storage>&);
  bool step();  // whether any address changed

  std::vector<AddressRange> ranges_;  // by storage
  std::vector<std::vector<Operand>> operands_;
  std::vector<std::uint32_t> carried_;
  std::vector<std::vector<std::uint32_t>> births_, deaths_;
  CachingAllocator allocator_;
};

}  // namespace sentinel::sim
