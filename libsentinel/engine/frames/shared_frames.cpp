#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "alloc/ranges.h"
#include "engine/frames/backing.h"

namespace sentinel {

SharedFrames::SharedFrames(FaultLoop& loop, std::uintptr_t arena, std::uint64_t bytes)
    : loop_(loop),
      arena_(arena),
      alias_(0),
      bytes_(bytes),
      fd_(create_memory_file("sentinel", bytes)) {
  alias_ = map_shared(fd_, bytes, kGranule);
  madvise(reinterpret_cast<void*>(alias_), bytes, MADV_DONTFORK);
}

SharedFrames::~SharedFrames() {
  munmap(reinterpret_cast<void*>(alias_), bytes_);
  close(fd_);
}

int SharedFrames::take(BlockIndex block, Token& token) noexcept {
  token = 0;
  const auto address = arena_ + static_cast<std::uint64_t>(block) * kGranule;
  return madvise(reinterpret_cast<void*>(address), kGranule, MADV_DONTNEED) == 0 ? 0 : -errno;
}

void* SharedFrames::buffer(BlockIndex block, Token) noexcept {
  return reinterpret_cast<void*>(alias_ + static_cast<std::uint64_t>(block) * kGranule);
}

void SharedFrames::scrub(BlockIndex block, Token) noexcept {
  const auto offset = static_cast<off_t>(static_cast<std::uint64_t>(block) * kGranule);
  madvise(buffer(block, 0), kGranule, MADV_DONTNEED);
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, kGranule);
}

// A completion of io_uring in this thread interrupts fallocate() though no signal has come.
int SharedFrames::install(BlockIndex block, Token) noexcept {
  const auto offset = static_cast<std::uint64_t>(block) * kGranule;
  while (fallocate(fd_, 0, static_cast<off_t>(offset), kGranule) != 0)
    if (errno != EINTR) return -errno;
  return counting_ ? loop_.wake(arena_ + offset, kGranule) : loop_.cont(arena_ + offset, kGranule);
}

}  // namespace sentinel
