// Moves descriptors out of a program's reach, and tells our own files from others by their
// inode.
#include "base/descriptor.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

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

OurFile::OurFile(int number) noexcept : number_(number) {
  struct stat found {};
  if (number < 0 || fstat(number, &found) != 0) return;
  device_ = found.st_dev;
  inode_ = found.st_ino;
}

bool OurFile::is(const struct stat& found) const noexcept {
  return found.st_dev == device_ && found.st_ino == inode_;
}

bool OurFile::is_ours() const noexcept {
  struct stat found {};
  const bool ours = fstat(number_, &found) == 0 && is(found);
  if (!ours) errno = EBADF;
  return ours;
}

void OurFile::close() noexcept {
  if (number_ >= 0 && is_ours()) ::close(number_);
  number_ = -1;
}

}  // namespace sentinel
