#include "alloc/ranges.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

// mmap aligns to pages only: map more than needed and give the ends back.
std::uintptr_t map_aligned(std::size_t bytes, std::size_t alignment, int flags, int fd) {
  void* hole = mmap(nullptr, bytes + alignment, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (hole == MAP_FAILED)
    throw Error(fmt::format("could not reserve {} of address space (see ulimit -v and "
                            "vm.overcommit_memory)",
                            print_bytes(bytes)),
                errno);
  const auto raw = reinterpret_cast<std::uintptr_t>(hole);
  const auto begin = round_up(raw, alignment);
  if (begin > raw) munmap(hole, begin - raw);
  munmap(reinterpret_cast<void*>(begin + bytes), raw + alignment - begin);
  void* map = mmap(reinterpret_cast<void*>(begin), bytes, PROT_READ | PROT_WRITE,
                   flags | MAP_FIXED | MAP_NORESERVE, fd, 0);
  if (map == MAP_FAILED)
    throw Error(fmt::format("could not map {} of address space", print_bytes(bytes)), errno);
  return begin;
}

}  // namespace

std::uintptr_t reserve_anonymous(std::size_t bytes, std::size_t alignment) {
  const auto begin = map_aligned(bytes, alignment, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  madvise(reinterpret_cast<void*>(begin), bytes, MADV_HUGEPAGE);  // absent THP costs speed only
  return begin;
}

std::uintptr_t map_shared(int fd, std::size_t bytes, std::size_t alignment) {
  return map_aligned(bytes, alignment, MAP_SHARED, fd);
}

int create_memory_file(const char* name, std::size_t bytes) {
  const int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0) throw Error("could not create a memory file", errno);
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) return fd;
  const int code = errno;
  close(fd);
  throw Error(fmt::format("could not size a memory file to {}", print_bytes(bytes)), code);
}

}  // namespace sentinel
