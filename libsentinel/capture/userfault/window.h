// A thread's window (docs/design/counting.md): the FIFO of pages that it opened and that are not
// armed again yet. Pure bookkeeping. An opening weighs as many pages as it stands for; a page
// leaves when the weight opened after it has reached the width. With all weights 1 the window holds
// the `width` last pages.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sentinel {

struct Opening {
  std::uintptr_t page = 0;
  std::uint64_t serial = 0;   // tells it from an earlier or later opening of the same page
  std::uint64_t reached = 0;  // the thread's total weight with it
  std::uint32_t weight = 0;
};

class Window {
 public:
  Window() = default;
  Window(Opening* storage, std::size_t capacity) : ring_(storage), capacity_(capacity) {}

  std::size_t size() const noexcept { return size_; }
  bool full() const noexcept { return size_ == capacity_; }

  void push(std::uintptr_t page, std::uint64_t serial, std::uint32_t weight) noexcept {
    total_ += weight;
    ring_[(head_ + size_++) % capacity_] = {page, serial, total_, weight};
  }

  // Whether the oldest page leaves a window of this width once `more` weight has been opened;
  // the `floor` newest pages never leave.
  bool leaves(std::uint64_t width, std::size_t floor = 0, std::uint64_t more = 0) const noexcept {
    return size_ > floor && total_ + more - ring_[head_].reached >= width;
  }

  Opening pop() noexcept {
    const Opening oldest = ring_[head_];
    head_ = (head_ + 1) % capacity_;
    --size_;
    return oldest;
  }

 private:
  Opening* ring_ = nullptr;
  std::size_t capacity_ = 0, head_ = 0, size_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace sentinel
