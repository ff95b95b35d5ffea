// Reserves and maps address ranges, away from where the process's own mappings grow.
#include "alloc/ranges.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/descriptor.h"
#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

// Far from where the kernel puts mappings by itself: below them where they grow down from the stack
// (the usual way), as well as where they grow up (ulimit -s unlimited). A range that a child does
// not inherit is free in it. Were it among the others, the child's next mapping could be given it,
// and what it takes for a tensor would be zeros.
std::uintptr_t place_apart(std::size_t bytes) {
  constexpr std::uintptr_t kBegin = std::uintptr_t{32} << 40, kRandom = std::uintptr_t{1} << 40;
  static const std::uintptr_t begin = [] {
    std::uintptr_t random = 0;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) random = 0;
    return kBegin + random % kRandom / 1_GiB * 1_GiB;
  }();
  static std::atomic<std::uintptr_t> taken{0};
  return begin + taken.fetch_add(round_up(bytes, 1_GiB));
}

// Nothing where something lies already, or where this processor has no such addresses. The thread
// sanitizer knows no memory at these: it would pass on 0 for them.
void* reserve_apart(std::size_t bytes) {
#ifdef __SANITIZE_THREAD__
  return MAP_FAILED;
#endif
  void* const place = reinterpret_cast<void*>(place_apart(bytes));
  void* const hole = mmap(place, bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (hole == place || hole == MAP_FAILED) return hole;
  munmap(hole, bytes);  // a kernel before 4.17 takes the address for a wish
  return MAP_FAILED;
}

// mmap aligns to pages only: map more than needed and give the ends back.
std::uintptr_t map_aligned(std::size_t bytes, std::size_t alignment, int flags, int fd) {
  void* hole = reserve_apart(bytes + alignment);
  if (hole == MAP_FAILED)
    hole = mmap(nullptr, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
  if (hole == MAP_FAILED)
    throw Error(fmt::format("could not reserve {} of address space (see ulimit -v, ulimit -d "
                            "and vm.overcommit_memory; a smaller --arena needs less)",
                            print_bytes(bytes)),
                errno);
  const auto raw = reinterpret_cast<std::uintptr_t>(hole);
  const auto begin = round_up(raw, alignment);
  if (begin > raw) munmap(hole, begin - raw);
  munmap(reinterpret_cast<void*>(begin + bytes), raw + alignment - begin);
  void* map = mmap(reinterpret_cast<void*>(begin), bytes, PROT_READ | PROT_WRITE,
                   flags | MAP_FIXED | MAP_NORESERVE, fd, 0);
  if (map == MAP_FAILED)
    throw Error(fmt::format("could not map {} of address space (see ulimit -d and "
                            "vm.overcommit_memory; a smaller --arena needs less)",
                            print_bytes(bytes)),
                errno);
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
  const int fd = out_of_reach(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd < 0) throw Error("could not create a memory file", errno);
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) return fd;
  const int code = errno;
  close(fd);
  throw Error(
      fmt::format("could not size a memory file to {} (see ulimit -f; a smaller --arena needs "
                  "less)",
                  print_bytes(bytes)),
      code);
}

}  // namespace sentinel
