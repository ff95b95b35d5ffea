#include "engine/io/child_life.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/descriptor.h"

namespace sentinel {
namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

ChildLife ChildLife::begin() noexcept {
  ChildLife life;
  const int file = out_of_reach(memfd_create("sentinel-child", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file < 0) return life;
  void* mapping = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapping == MAP_FAILED) {
    const int code = errno;
    close(file);
    errno = code;
    return life;
  }
  struct stat found {};
  fstat(file, &found);
  life.file_ = file;
  life.device_ = found.st_dev;
  life.inode_ = found.st_ino;
  life.mapping_ = mapping;
  return life;
}

void ChildLife::in_parent() noexcept { munmap(std::exchange(mapping_, nullptr), kPage); }

void ChildLife::in_child() noexcept { forget(); }

bool ChildLife::is_ours() const noexcept {
  struct stat found {};
  return fstat(file_, &found) == 0 && found.st_dev == device_ && found.st_ino == inode_;
}

bool ChildLife::over() const noexcept {
  return is_ours() && fcntl(file_, F_ADD_SEALS, F_SEAL_WRITE) == 0;
}

void ChildLife::forget() noexcept {
  if (file_ >= 0 && is_ours()) close(file_);
  file_ = -1;
}

}  // namespace sentinel
