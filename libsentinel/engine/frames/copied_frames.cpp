// Frames that move by copying, where a kernel has no UFFDIO_MOVE.
#include <sys/mman.h>

#include <cerrno>

#include "base/kept_memory.h"
#include "engine/frames/backing.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace sentinel {
namespace {

class CopiedFrames final : public Backing {
 public:
  CopiedFrames(FaultLoop& loop, std::uintptr_t arena, std::uint64_t bytes)
      : loop_(loop), arena_(arena), slots_(bytes) {}

  Token create(FrameNode) noexcept override {
    const auto token = slots_.take();
    if (madvise(pointer(token), kGranule, MADV_POPULATE_WRITE) == 0) return token;
    const int code = errno;
    slots_.give(token);
    return -code;
  }

  void destroy(Token token) noexcept override {
    madvise(pointer(token), kGranule, MADV_DONTNEED);
    slots_.give(token);
  }

  // The block stays mapped, empty and guarded; its pages are at the token's place from then on,
  // where they are a frame like any other and not guarded.
  // A pinned page would leave with them.
  int take(BlockIndex block, Token& token) noexcept override {
    if (pinned_bytes() > pinned_) return -EBUSY;
    token = slots_.take();
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    void* from = reinterpret_cast<void*>(address(block));
    if (mremap(from, kGranule, kGranule, flags, pointer(token)) == MAP_FAILED) {
      const int code = errno;
      slots_.give(token);
      return -code;
    }
    loop_.unregister_range(slots_.address(token), kGranule);
    return 0;
  }

  void* buffer(BlockIndex, Token token) noexcept override { return pointer(token); }
  void scrub(BlockIndex, Token) noexcept override {}

  int install(BlockIndex block, Token token) noexcept override {
    const int code = loop_.copy(address(block), slots_.address(token), kGranule);
    if (code == 0) destroy(token);
    return code;
  }

 private:
  void* pointer(Token token) const { return reinterpret_cast<void*>(slots_.address(token)); }
  std::uintptr_t address(BlockIndex block) const {
    return arena_ + static_cast<std::uint64_t>(block) * kGranule;
  }

  FaultLoop& loop_;
  std::uintptr_t arena_;
  FrameSlots slots_;
  std::uint64_t pinned_ = pinned_bytes();  // before there was a tensor
};

}  // namespace

std::unique_ptr<Backing> make_copied_frames(FaultLoop& loop, std::uintptr_t arena,
                                            std::uint64_t bytes) {
  return std::make_unique<CopiedFrames>(loop, arena, bytes);
}

}  // namespace sentinel
