// The copy of a block that stays in the file when the block comes back. If the block leaves again
// with the same digest, nobody has written to it, and it needs no write.
//
// A digest costs about as much as a copy in memory, so a block has to earn it: blocks whose copies
// were of no use several times in a row are tried again after a pause. Weights are read twice or
// more between two updates; an optimizer's moments change each time they come.
#pragma once

#include <cstdint>

#include "engine/io/checksums.h"

namespace sentinel {

class KeptCopy {
 public:
  // Asked once each time the block is to be written: whether its digest is worth taking.
  bool wanted() noexcept {
    if (trust_ < 0 && ++trust_ == 0) trust_ = 1;
    return trust_ > 0;
  }
  void keep(const Digest& digest) noexcept {
    digest_ = digest;
    kept_ = true;
  }
  // The slot's contents have this digest, and the slot is the block's also while that is resident.
  bool is_kept() const noexcept { return kept_; }
  bool is_of(const Digest& digest) const noexcept { return kept_ && digest_ == digest; }

  // It has saved a write.
  void served() noexcept { trust_ = kMost; }
  // It is of no use any more: the block was written to, or is dead.
  void forget() noexcept {
    if (kept_ && trust_ > 0 && --trust_ == 0) trust_ = -kPause;
    kept_ = false;
  }

 private:
  static constexpr std::int8_t kFirst = 2, kMost = 4, kPause = 32;

  Digest digest_;
  std::int8_t trust_ = kFirst;  // > 0: digests in vain that are left; < 0: times until the next
  bool kept_ = false;
};

}  // namespace sentinel
