// Opening a userfaultfd that may handle kernel-mode faults, and saying why not where it may not.
#pragma once

#include <cstdint>
#include <string>

namespace sentinel {

// By which way a userfaultfd is opened. automatic: the device first, where it may be opened.
enum class UffdBackend : std::uint8_t { automatic, syscall, device };

// What happened when each way was tried. errno values; 0: it worked; -1: not tried.
struct UffdProbe {
  int device_error = -1;       // opening /dev/userfaultfd and asking it for a descriptor
  int syscall_error = -1;      // userfaultfd(2), kernel-mode faults included
  int user_only_error = -1;    // userfaultfd(2) with UFFD_USER_MODE_ONLY
  std::uint64_t features = 0;  // what the kernel offers, where a descriptor could be had
};

struct UffdHandle {
  int fd = -1;
  std::uint64_t features = 0;  // enabled
};

UffdProbe probe_userfaultfd();

// Why a process with these results may not handle kernel-mode faults, and what to do about it.
struct UffdRefusal {
  std::string reason, remedy;
};
UffdRefusal explain_refusal(const UffdProbe&);

// Non-blocking, close-on-exec. Throws Error with reason and remedy.
UffdHandle open_userfaultfd(UffdBackend, std::uint64_t wanted_features);

}  // namespace sentinel
