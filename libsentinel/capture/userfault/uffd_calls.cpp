// Passes each call on to the kernel, and keeps who is in its place.
#include "capture/userfault/uffd_calls.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>

namespace sentinel {
namespace {

UffdCalls kernel;
std::atomic<UffdCalls*> in_use{&kernel};

}  // namespace

int UffdCalls::control(int fd, unsigned long request, void* argument) noexcept {
  return ioctl(fd, request, argument);
}

ssize_t UffdCalls::read(int fd, uffd_msg* messages, std::size_t bytes) noexcept {
  return ::read(fd, messages, bytes);
}

UffdCalls& uffd_calls() noexcept { return *in_use; }

OtherUffdCalls::OtherUffdCalls(UffdCalls& others) noexcept { in_use = &others; }
OtherUffdCalls::~OtherUffdCalls() { in_use = &kernel; }

}  // namespace sentinel
