// Reserves the addresses of frame slots, and hands them out and takes them back.
#include <sys/mman.h>

#include "alloc/ranges.h"
#include "engine/frames/backing.h"

namespace sentinel {

FrameSlots::FrameSlots(std::uint64_t bytes)
    : bytes_(bytes), begin_(reserve_anonymous(bytes, kGranule)) {
  madvise(reinterpret_cast<void*>(begin_), bytes, MADV_DONTFORK);  // no child ever needs a frame
  const auto count = bytes / kGranule;
  empty_.reserve(count);
  for (auto place = count; place-- > 0;) empty_.push_back(static_cast<Token>(place));
}

FrameSlots::~FrameSlots() { munmap(reinterpret_cast<void*>(begin_), bytes_); }

Token FrameSlots::take() noexcept {
  const std::lock_guard guard(lock_);
  const auto token = empty_.back();
  empty_.pop_back();
  return token;
}

void FrameSlots::give(Token token) noexcept {
  const std::lock_guard guard(lock_);
  empty_.push_back(token);
}

}  // namespace sentinel
