// Collects ranges of pages, and unmaps them together or one by one, as the kernel is able to.
#include "capture/userfault/page_unmapper.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

namespace sentinel {
namespace {

constexpr int kPidfdSelf = -10001;  // PIDFD_SELF_THREAD_GROUP, Linux 6.14
constexpr std::size_t kWorthIt = 2;

std::atomic<bool> together_works{true};

}  // namespace

void PageUnmapper::add(std::uintptr_t address, std::size_t length) noexcept {
  if (count_ > 0) {
    iovec& last = ranges_[count_ - 1];
    if (reinterpret_cast<std::uintptr_t>(last.iov_base) + last.iov_len == address) {
      last.iov_len += length;
      return;
    }
  }
  if (count_ == kMost) {
    const int rc = flush();
    if (error_ == 0) error_ = rc;
  }
  ranges_[count_++] = {reinterpret_cast<void*>(address), length};
}

int PageUnmapper::flush() noexcept {
  const int rc = zap_singly(zap_together());
  count_ = 0;
  const int first = error_ != 0 ? error_ : rc;
  error_ = 0;
  return first;
}

// How many leading ranges are done.
std::size_t PageUnmapper::zap_together() noexcept {
  if (count_ < kWorthIt || !together_works.load(std::memory_order_relaxed)) return 0;
  const long bytes =
      syscall(SYS_process_madvise, kPidfdSelf, ranges_.data(), count_, MADV_DONTNEED, 0U);
  if (bytes < 0) {
    if (errno != ENOMEM && errno != EAGAIN && errno != EINTR) together_works = false;
    return 0;
  }
  std::size_t done = 0;
  for (auto rest = static_cast<std::size_t>(bytes); done < count_; ++done) {
    if (rest < ranges_[done].iov_len) break;
    rest -= ranges_[done].iov_len;
  }
  return done;
}

int PageUnmapper::zap_singly(std::size_t from) noexcept {
  int first = 0;
  for (; from < count_; ++from)
    if (madvise(ranges_[from].iov_base, ranges_[from].iov_len, MADV_DONTNEED) != 0 && first == 0)
      first = -errno;
  return first;
}

}  // namespace sentinel
