// From a page's address to what is known of it, in two loads. Leaves are made while arming, never
// in the fault path. Addresses of up to 47 bits, which is what Linux gives out unasked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "capture/reserved.h"

namespace sentinel {

// A page is untracked (weight 0), armed (serial 0) or open.
struct PageRecord {
  std::uint32_t slot = 0;         // of its tag's counter
  std::uint32_t weight : 31 = 0;  // pages it stands for
  std::uint32_t even : 1 = 0;     // in an even run of its range (sampling.h)
  std::uint64_t opening = 0;      // the serial number of the opening that it is open by
  bool tracked() const noexcept { return weight != 0; }
  bool armed() const noexcept { return tracked() && opening == 0; }
};

class PageIndex {
 public:
  static constexpr std::uintptr_t kPage = 4096;

  PageIndex() : leaves_(std::size_t{1} << (47 - 12 - kLeafBits)) {}
  ~PageIndex();
  PageIndex(const PageIndex&) = delete;
  PageIndex& operator=(const PageIndex&) = delete;

  // Makes the leaves for [begin, end). -EFAULT for an address out of reach, -ENOMEM.
  int prepare(std::uintptr_t begin, std::uintptr_t end) noexcept;

  PageRecord* find(std::uintptr_t address) noexcept {
    const std::uintptr_t number = address / kPage, leaf = number >> kLeafBits;
    if (leaf >= leaves_.size() || leaves_[leaf] == nullptr) return nullptr;
    return leaves_[leaf] + (number & (kLeafPages - 1));
  }

  // How many pages from `address` on, `most` at most, are untracked.
  std::size_t untracked_run(std::uintptr_t address, std::size_t most) noexcept;
  void forget(std::uintptr_t begin, std::uintptr_t end) noexcept;  // makes its pages untracked

 private:
  static constexpr int kLeafBits = 15;  // a leaf covers 128 MiB
  static constexpr std::size_t kLeafPages = std::size_t{1} << kLeafBits;
  static constexpr std::size_t kLeafBytes = kLeafPages * sizeof(PageRecord);

  Reserved<PageRecord*> leaves_;
};

}  // namespace sentinel
