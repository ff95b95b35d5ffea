// Takes pages of a shared mapping out of the page table (MADV_DONTNEED); their contents stay in the
// page cache. Ranges are collected and zapped together where the kernel can (process_madvise on
// oneself, one TLB flush for all: Linux 6.13), one by one elsewhere.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace sentinel {

class PageUnmapper {
 public:
  // Flushes by itself when full; adjacent ranges become one.
  void add(std::uintptr_t address, std::size_t length) noexcept;
  bool empty() const noexcept { return count_ == 0; }
  // 0, or the errno of the first range that could not be zapped (-ENOMEM: it is not mapped).
  int flush() noexcept;

 private:
  static constexpr std::size_t kMost = 256;
  std::size_t zap_together() noexcept;
  int zap_singly(std::size_t from) noexcept;

  std::array<iovec, kMost> ranges_{};
  std::size_t count_ = 0;
  int error_ = 0;
};

}  // namespace sentinel
