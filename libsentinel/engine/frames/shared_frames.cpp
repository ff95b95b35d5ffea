// Frames in a memory file, mapped a second time, for steps in which accesses are counted.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "alloc/ranges.h"
#include "base/kept_memory.h"
#include "engine/frames/backing.h"
#include "engine/host/stop.h"

namespace sentinel {

SharedFrames::SharedFrames(FaultLoop& loop, std::uintptr_t arena, std::uint64_t bytes,
                           std::uint64_t pinned)
    : loop_(loop),
      arena_(arena),
      alias_(0),
      bytes_(bytes),
      file_(create_memory_file("sentinel", bytes)),
      pinned_(pinned) {
  alias_ = map_shared(file_.number(), bytes, kGranule);
  madvise(reinterpret_cast<void*>(alias_), bytes, MADV_DONTFORK);
}

SharedFrames::~SharedFrames() {
  munmap(reinterpret_cast<void*>(alias_), bytes_);
  file_.close();
}

int SharedFrames::descriptor() const noexcept {
  require_ours();
  return file_.number();
}

// The policy of a memory file's mapping is the file's.
int SharedFrames::prefer(NodeCalls& calls, int node) noexcept {
  return calls.bind(reinterpret_cast<void*>(alias_), bytes_, node);
}

// Else what is done to it would be done to a file of the program's, or that be mapped as memory.
void SharedFrames::require_ours() const noexcept {
  if (!file_.is_ours()) stop_training(kClosed);
}

// A page leaves a file though it is pinned, and whoever has pinned it goes on with what nobody
// sees.
int SharedFrames::take(BlockIndex block, Token& token) noexcept {
  token = 0;
  if (pinned_bytes() > pinned_) return -EBUSY;
  const auto address = arena_ + static_cast<std::uint64_t>(block) * kGranule;
  return madvise(reinterpret_cast<void*>(address), kGranule, MADV_DONTNEED) == 0 ? 0 : -errno;
}

void* SharedFrames::buffer(BlockIndex block, Token) noexcept {
  return reinterpret_cast<void*>(alias_ + static_cast<std::uint64_t>(block) * kGranule);
}

void SharedFrames::scrub(BlockIndex block, Token) noexcept {
  const auto offset = static_cast<off_t>(static_cast<std::uint64_t>(block) * kGranule);
  madvise(buffer(block, 0), kGranule, MADV_DONTNEED);
  require_ours();
  fallocate(file_.number(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, kGranule);
}

// A completion of io_uring in this thread interrupts fallocate() though no signal has come.
int SharedFrames::install(BlockIndex block, Token) noexcept {
  const auto offset = static_cast<std::uint64_t>(block) * kGranule;
  require_ours();
  while (fallocate(file_.number(), 0, static_cast<off_t>(offset), kGranule) != 0)
    if (errno != EINTR) return -errno;
  return counting_ ? loop_.wake(arena_ + offset, kGranule) : loop_.cont(arena_ + offset, kGranule);
}

// The kernel seals no file that has a page which it holds for I/O. It waits a little itself.
int SharedFrames::seal() noexcept {
  require_ours();
  constexpr int kTries = 10;
  const auto map = [this](int protection, int flags, int fd) {
    void* at = reinterpret_cast<void*>(alias_);
    if (mmap(at, bytes_, protection, flags | MAP_FIXED, fd, 0) == MAP_FAILED) return -errno;
    return madvise(at, bytes_, MADV_DONTFORK) == 0 ? 0 : -errno;
  };
  const auto add_seal = [this] {
    return fcntl(file_.number(), F_ADD_SEALS, F_SEAL_WRITE) == 0 ? 0 : -errno;
  };
  int code = map(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  if (code == 0) code = add_seal();
  for (int i = 1; code == -EBUSY && i < kTries; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    code = add_seal();
  }
  const int mapped =
      map(code == 0 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, file_.number());
  return code != 0 ? code : mapped;
}

void SharedFrames::drop_from(BlockIndex block) noexcept {
  require_ours();
  [[maybe_unused]] const int code =
      ftruncate(file_.number(), static_cast<off_t>(static_cast<std::uint64_t>(block) * kGranule));
}

}  // namespace sentinel
