#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "alloc/ranges.h"
#include "execute/backing.h"
#include "sentinel/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace sentinel {
namespace {

// The nursery is one more granule, not registered, in which frames are made: populating a
// registered range would raise a fault for every page.
class MovedFrames final : public Backing {
 public:
  MovedFrames(FaultLoop& loop, std::uintptr_t arena, std::uint64_t bytes)
      : loop_(loop),
        arena_(arena),
        places_(bytes),
        nursery_(reserve_anonymous(kGranule, kGranule)) {
    if (const int code = loop_.register_range(places_.begin(), bytes, true, false); code != 0)
      throw Error("could not guard the frame pool", -code);
  }

  ~MovedFrames() override { munmap(reinterpret_cast<void*>(nursery_), kGranule); }

  Token create() noexcept override {
    const std::lock_guard guard(nursery_lock_);
    if (madvise(reinterpret_cast<void*>(nursery_), kGranule, MADV_POPULATE_WRITE) != 0)
      return -errno;
    const auto token = places_.take();
    const int code = loop_.move(places_.address(token), nursery_, kGranule);
    if (code == 0) return token;
    places_.give(token);
    return code;
  }

  void destroy(Token token) noexcept override {
    madvise(reinterpret_cast<void*>(places_.address(token)), kGranule, MADV_DONTNEED);
    places_.give(token);
  }

  int take(BlockIndex block, Token& token) noexcept override {
    token = places_.take();
    const int code = move_whole(places_.address(token), address(block));
    if (code != 0) places_.give(token);
    return code;
  }

  bool passes() const noexcept override { return true; }
  // What has arrived may be written at once, so nothing goes back: the rest follows, by copies of
  // what stays busy.
  int pass(BlockIndex from, BlockIndex to) noexcept override {
    const auto moved = move_some(address(to), address(from));
    if (moved.bytes == 0) return moved.code;
    const auto rest = kGranule - moved.bytes;
    return bring(address(to) + moved.bytes, address(from) + moved.bytes, rest) == 0 ? 0 : -EIO;
  }

  void* buffer(BlockIndex, Token token) noexcept override {
    return reinterpret_cast<void*>(places_.address(token));
  }

  void scrub(BlockIndex, Token) noexcept override {}

  int install(BlockIndex block, Token token) noexcept override {
    const int code = bring(address(block), places_.address(token), kGranule);
    if (code == 0) places_.give(token);
    return code;
  }

 private:
  std::uintptr_t address(BlockIndex block) const {
    return arena_ + static_cast<std::uint64_t>(block) * kGranule;
  }

  struct Moved {
    std::size_t bytes = 0;
    int code = 0;  // why not all
  };

  // A page that a fork made shared answers EBUSY until it is written again (MEASUREMENTS), and so
  // does, for a moment, one that the kernel is looking at: mend and try again a few times.
  Moved move_some(std::uintptr_t to, std::uintptr_t from) noexcept {
    Moved all;
    for (int attempt = 0; attempt < 4 && all.bytes < kGranule; ++attempt) {
      if (all.code == -EBUSY)
        madvise(reinterpret_cast<void*>(from + all.bytes), kGranule - all.bytes,
                MADV_POPULATE_WRITE);
      std::size_t now = 0;
      all.code = loop_.move(to + all.bytes, from + all.bytes, kGranule - all.bytes, &now);
      all.bytes += now;
    }
    return all;
  }

  // What was moved before a lasting failure goes back, so that the block is whole.
  int move_whole(std::uintptr_t to, std::uintptr_t from) noexcept {
    const auto [moved, code] = move_some(to, from);
    if (moved == kGranule) return 0;
    return moved == 0 || bring(from, to, moved) == 0 ? code : -EIO;
  }

  // Transfers that are complete may hold their pages for a while yet (a direct read gives back
  // dirty pages in a work queue). What stays busy for some milliseconds is copied: nobody writes
  // it.
  int bring(std::uintptr_t to, std::uintptr_t from, std::size_t bytes) noexcept {
    std::size_t moved = 0;
    for (int attempt = 0; attempt < 50 && moved < bytes; ++attempt) {
      if (attempt >= 20) usleep(100);
      std::size_t now = 0;
      const int code = loop_.move(to + moved, from + moved, bytes - moved, &now);
      moved += now;
      if (code != 0 && code != -EAGAIN && code != -EBUSY && now == 0) return code;
    }
    if (moved == bytes) return 0;
    const int code = loop_.copy(to + moved, from + moved, bytes - moved);
    if (code == 0) madvise(reinterpret_cast<void*>(from + moved), bytes - moved, MADV_DONTNEED);
    return code;
  }

  FaultLoop& loop_;
  std::uintptr_t arena_;
  Places places_;
  std::uintptr_t nursery_;
  std::mutex nursery_lock_;  // the nursery holds one frame at a time
};

}  // namespace

std::unique_ptr<Backing> make_moved_frames(FaultLoop& loop, std::uintptr_t arena,
                                           std::uint64_t bytes) {
  return std::make_unique<MovedFrames>(loop, arena, bytes);
}

}  // namespace sentinel
