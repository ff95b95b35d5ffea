// Opens a userfaultfd by device or by system call, and explains a refusal.
#include "capture/userfault/uffd_open.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "capture/userfault/uffd_abi.h"
#include "capture/userfault/uffd_calls.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
constexpr std::uint64_t kRequired = UFFD_FEATURE_THREAD_ID | UFFD_FEATURE_MISSING_SHMEM;
constexpr std::uint64_t kKnown = kRequired | UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_EVENT_REMAP |
                                 UFFD_FEATURE_EXACT_ADDRESS | UFFD_FEATURE_MOVE |
                                 UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_RWP;

// These return a descriptor or a negative errno.
int open_by_device() {
  const int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (device < 0) return -errno;
  const int fd = ioctl(device, USERFAULTFD_IOC_NEW, kFlags);
  const int code = errno;
  close(device);
  return fd < 0 ? -code : fd;
}

int open_by_syscall(int extra_flags) {
  const long fd = syscall(SYS_userfaultfd, kFlags | extra_flags);
  return fd < 0 ? -errno : static_cast<int>(fd);
}

// A descriptor shakes hands once: asking what is offered uses it up.
std::uint64_t offered_features(int fd) {
  uffdio_api api{};
  api.api = UFFD_API;
  return uffd_calls().control(fd, UFFDIO_API, &api) == 0 ? api.features : 0;
}

int try_open(UffdBackend backend, UffdProbe& probe) {
  if (backend != UffdBackend::syscall) {
    const int fd = open_by_device();
    probe.device_error = fd < 0 ? -fd : 0;
    if (fd >= 0) return fd;
  }
  if (backend == UffdBackend::device) return -1;
  const int fd = open_by_syscall(0);
  probe.syscall_error = fd < 0 ? -fd : 0;
  if (fd >= 0) return fd;
  const int user_only = open_by_syscall(UFFD_USER_MODE_ONLY);
  probe.user_only_error = user_only < 0 ? -user_only : 0;
  if (user_only >= 0) close(user_only);
  return -1;
}

}  // namespace

UffdProbe probe_userfaultfd() {
  UffdProbe probe;
  const int fd = try_open(UffdBackend::automatic, probe);
  if (fd < 0) return probe;
  probe.features = offered_features(fd);
  close(fd);
  return probe;
}

// The device serves whoever may open it, whatever sysctl and seccomp say of the system call.
UffdRefusal explain_refusal(const UffdProbe& probe) {
  constexpr const char* kInContainer =
      "in a container, pass the device in (docker run --device /dev/userfaultfd, which a seccomp "
      "profile does not block; Linux 6.1 or later has it)";
  constexpr const char* kOpenDevice =
      "let this user open the device: as root, setfacl -m u:USER:rw /dev/userfaultfd";
  constexpr const char* kSysctl =
      "as root, sysctl -w vm.unprivileged_userfaultfd=1, or run as root";
  const bool is_there = probe.device_error == EACCES;
  if (probe.syscall_error == ENOSYS)
    return {"this kernel is built without userfaultfd, or a seccomp profile hides it",
            fmt::format("{}; else allow the call userfaultfd, which Docker's default seccomp "
                        "profile blocks; elsewhere use a kernel with CONFIG_USERFAULTFD",
                        kInContainer)};
  if (probe.user_only_error == 0)
    return {
        "this process may handle user-mode faults only, and read(2) into a tracked page would "
        "fail",
        fmt::format("{}; else, {}", is_there ? kOpenDevice : kInContainer, kSysctl)};
  if (probe.syscall_error == EPERM)
    return {"userfaultfd is not permitted at all, which is what a seccomp filter does",
            fmt::format("{}; else allow the call userfaultfd, which Docker's default seccomp "
                        "profile blocks; elsewhere {}, or {}",
                        kInContainer, kOpenDevice, kSysctl)};
  if (probe.syscall_error == -1)
    return {"/dev/userfaultfd cannot be used",
            fmt::format("Linux 6.1 or later has it; {}", kOpenDevice)};
  return {"no userfaultfd can be had", "raise the limit of open files (ulimit -n), or see dmesg"};
}

UffdHandle open_userfaultfd(UffdBackend backend, std::uint64_t wanted_features) {
  UffdProbe probe;
  const int scout = try_open(backend, probe);
  if (scout < 0) {
    const UffdRefusal refusal = explain_refusal(probe);
    throw Error("opening userfaultfd: " + refusal.reason + "; " + refusal.remedy,
                probe.syscall_error > 0 ? probe.syscall_error : probe.device_error);
  }
  const std::uint64_t offered = offered_features(scout);
  close(scout);
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = (kRequired | (wanted_features & kKnown)) & offered;
  if ((api.features & kRequired) != kRequired)
    throw Error("this kernel's userfaultfd lacks shared memory or thread ids; Linux 4.14 has them");
  const int fd = try_open(backend, probe);
  if (fd < 0 || uffd_calls().control(fd, UFFDIO_API, &api) != 0) {
    const int code = errno;
    if (fd >= 0) close(fd);
    throw Error("enabling userfaultfd's features", code);
  }
  return {fd, (kRequired | (wanted_features & kKnown)) & offered};
}

}  // namespace sentinel
