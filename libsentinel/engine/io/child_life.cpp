// Maps a memory file that a child and its children inherit; once it can be sealed, none of them
// lives.
#include "engine/io/child_life.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <utility>

namespace sentinel {
namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

ChildLife ChildLife::begin() noexcept {
  ChildLife life;
  OurFile file(out_of_reach(memfd_create("sentinel-child", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (!file.is_open()) return life;
  void* mapping = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (mapping == MAP_FAILED) {
    const int code = errno;
    file.close();
    errno = code;
    return life;
  }
  life.file_ = file;
  life.mapping_ = mapping;
  return life;
}

void ChildLife::in_parent() noexcept { munmap(std::exchange(mapping_, nullptr), kPage); }

void ChildLife::in_child() noexcept { forget(); }

bool ChildLife::over() const noexcept {
  return file_.is_ours() && fcntl(file_.number(), F_ADD_SEALS, F_SEAL_WRITE) == 0;
}

void ChildLife::forget() noexcept { file_.close(); }

}  // namespace sentinel
