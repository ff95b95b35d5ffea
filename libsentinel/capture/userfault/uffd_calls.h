// What a userfaultfd is asked: its ioctls, and its messages. A seam for tests, which put a kernel
// that has what this one lacks in the place of it. It may change at any time.
//
// Thread-safe; called from signal handlers too. The descriptor itself is the kernel's: it is
// opened, polled and closed by its number.
#pragma once

#include <sys/types.h>

#include <cstddef>

struct uffd_msg;

namespace sentinel {

class UffdCalls {
 public:
  virtual ~UffdCalls() = default;
  // As ioctl(2) and read(2): -1 and errno.
  virtual int control(int fd, unsigned long request, void* argument) noexcept;
  virtual ssize_t read(int fd, uffd_msg* messages, std::size_t bytes) noexcept;
};

// Those that whoever opens a userfaultfd uses from then on: the kernel's, unless a test has others.
UffdCalls& uffd_calls() noexcept;

// As long as it lives, others are in the kernel's place. It outlives all that was opened meanwhile.
class OtherUffdCalls {
 public:
  explicit OtherUffdCalls(UffdCalls&) noexcept;
  ~OtherUffdCalls();
  OtherUffdCalls(const OtherUffdCalls&) = delete;
  OtherUffdCalls& operator=(const OtherUffdCalls&) = delete;
};

}  // namespace sentinel
