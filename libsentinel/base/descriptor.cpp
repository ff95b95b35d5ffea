#include "base/descriptor.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>

namespace sentinel {

int out_of_reach(int fd) noexcept {
  constexpr rlim_t kMost = 16384;  // the kernel's table is as long as the highest number
  rlimit limit{};
  if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) return fd;
  const auto top = std::min(limit.rlim_cur, kMost);
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, static_cast<int>(top - top / 8));
  if (moved < 0) return fd;
  close(fd);
  return moved;
}

}  // namespace sentinel
