// An array whose address space is taken at once and whose memory comes with first use, all zero.
// What the fault path writes lies in such arrays: they never move and never grow.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "sentinel/error.h"

namespace sentinel {

template <class T>
class Reserved {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  Reserved() = default;
  explicit Reserved(std::size_t count) : count_(count) {
    void* const at = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw Error("reserving address space", errno);
    items_ = static_cast<T*>(at);
  }
  Reserved(Reserved&& other) noexcept
      : items_(std::exchange(other.items_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  Reserved& operator=(Reserved&& other) noexcept {
    std::swap(items_, other.items_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~Reserved() {
    if (items_) munmap(items_, count_ * sizeof(T));
  }
  T& operator[](std::size_t i) noexcept { return items_[i]; }
  const T& operator[](std::size_t i) const noexcept { return items_[i]; }
  T* data() noexcept { return items_; }
  std::size_t size() const noexcept { return count_; }

 private:
  T* items_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace sentinel
