// Frames that move by UFFDIO_MOVE: page tables change, and no byte is copied.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "alloc/ranges.h"
#include "engine/frames/backing.h"
#include "sentinel/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace sentinel {
namespace {

// The nursery is one more granule, not registered, in which frames are made: populating a
// registered range would raise a fault for every page. No child has it: pages that a fork shares do
// not move.
class MovedFrames final : public Backing {
 public:
  MovedFrames(FaultLoop& loop, std::uintptr_t arena, std::uint64_t bytes,
              const std::optional<FrameMemory>& memory)
      : loop_(loop),
        arena_(arena),
        slots_(bytes),
        memory_(memory),
        nursery_(reserve_anonymous(kGranule, kGranule)) {
    if (const int code = loop_.register_range(slots_.begin(), bytes, true, false); code != 0)
      throw Error("could not guard the frame pool", -code);
    if (madvise(reinterpret_cast<void*>(nursery_), kGranule, MADV_DONTFORK) != 0)
      throw Error("could not keep frames from children", errno);
    if (!memory_) return;
    auto* pool = reinterpret_cast<void*>(slots_.begin());  // whose frames the kernel leaves alone
    if (const int code = memory_->calls.bind(pool, bytes, memory_->nodes.slow); code != 0)
      throw Error("could not prefer a node for frames (mbind)", -code);
  }

  ~MovedFrames() override { munmap(reinterpret_cast<void*>(nursery_), kGranule); }

  Token create(FrameNode node) noexcept override {
    const std::lock_guard guard(nursery_lock_);
    if (const int code = prefer(node); code != 0) return code;
    if (madvise(reinterpret_cast<void*>(nursery_), kGranule, MADV_POPULATE_WRITE) != 0)
      return -errno;
    const auto token = slots_.take();
    std::size_t moved = 0;
    const int code = move_whole(nursery_, slots_.address(token), moved);
    if (code == 0) return token;
    destroy(token);
    return code;
  }

  void destroy(Token token) noexcept override {
    madvise(reinterpret_cast<void*>(slots_.address(token)), kGranule, MADV_DONTNEED);
    slots_.give(token);
  }

  int take(BlockIndex block, Token& token) noexcept override {
    token = slots_.take();
    const auto to = slots_.address(token), from = address(block);
    std::size_t moved = 0;
    int code = move_whole(from, to, moved);
    if (code == 0) return 0;
    if (moved > 0 && bring(from, to, moved) != 0) code = -EIO;  // else the block is whole again
    if (moved > 0 && barred_ == Barred::on_its_way) unbar(from, moved);
    slots_.give(token);
    return code;
  }

  bool guard_may_take() const noexcept override { return true; }

  void* buffer(BlockIndex, Token token) noexcept override {
    return reinterpret_cast<void*>(slots_.address(token));
  }

  void scrub(BlockIndex, Token) noexcept override {}

  int install(BlockIndex block, Token token) noexcept override {
    const auto to = address(block);
    const Barred barred = barred_;
    const auto waking = barred == Barred::never ? FaultLoop::Wake::yes : FaultLoop::Wake::no;
    const int code = bring(to, slots_.address(token), kGranule, waking);
    if (code != 0) return code;
    slots_.give(token);
    if (barred == Barred::on_its_way) unbar(to, kGranule);
    if (barred == Barred::stays) loop_.wake(to, kGranule);
    return 0;
  }

  void arrive(Barred barred) noexcept override { barred_ = barred; }

 private:
  // The next frame that is made lies there.
  int prefer(FrameNode node) noexcept {
    if (!memory_ || nursery_node_ == node) return 0;
    const auto& nodes = memory_->nodes;
    const int id = node == FrameNode::fast ? nodes.fast : nodes.slow;
    const int code = memory_->calls.bind(reinterpret_cast<void*>(nursery_), kGranule, id);
    if (code == 0) nursery_node_ = node;
    return code;
  }

  std::uintptr_t address(BlockIndex block) const {
    return arena_ + static_cast<std::uint64_t>(block) * kGranule;
  }

  // A page that a fork made shared answers EBUSY until it is written again (MEASUREMENTS), and so
  // does, for a moment, one that the kernel is looking at: mend and try again a few times. `moved`:
  // so many bytes lie at `to`, also after a lasting failure.
  int move_whole(std::uintptr_t from, std::uintptr_t to, std::size_t& moved) noexcept {
    for (int attempt = 0;; ++attempt) {
      std::size_t now = 0;
      const int code = loop_.move(to + moved, from + moved, kGranule - moved, &now);
      moved += now;
      if (moved == kGranule) return 0;
      if (now > 0) attempt = 0;
      if (attempt == 3) return code;
      if (code == -EBUSY)
        madvise(reinterpret_cast<void*>(from + moved), kGranule - moved, MADV_POPULATE_WRITE);
    }
  }

  // Transfers that are complete may hold their pages for a while yet (a direct read gives back
  // dirty pages in a work queue). What stays busy for some milliseconds is copied: nobody writes
  // it.
  int bring(std::uintptr_t to, std::uintptr_t from, std::size_t bytes,
            FaultLoop::Wake waking = FaultLoop::Wake::yes) noexcept {
    std::size_t moved = 0;
    for (int attempt = 0; attempt < 50 && moved < bytes; ++attempt) {
      if (attempt >= 20) usleep(100);
      std::size_t now = 0;
      const int code = loop_.move(to + moved, from + moved, bytes - moved, &now, waking);
      moved += now;
      if (code != 0 && code != -EAGAIN && code != -EBUSY && now == 0) return code;
    }
    if (moved == bytes) return 0;
    const int code = loop_.copy(to + moved, from + moved, bytes - moved, waking);
    if (code == 0) madvise(reinterpret_cast<void*>(from + moved), bytes - moved, MADV_DONTNEED);
    return code;
  }

  // Where that is put off, the guard does it as the block is touched.
  void unbar(std::uintptr_t begin, std::size_t bytes) noexcept {
    if (loop_.unbar(begin, bytes) != 0) loop_.wake(begin, bytes);
  }

  FaultLoop& loop_;
  std::uintptr_t arena_;
  std::atomic<Barred> barred_ = Barred::never;
  FrameSlots slots_;
  const std::optional<FrameMemory> memory_;
  std::optional<FrameNode> nursery_node_;
  std::uintptr_t nursery_;
  std::mutex nursery_lock_;  // the nursery holds one frame at a time
};

}  // namespace

std::unique_ptr<Backing> make_moved_frames(FaultLoop& loop, std::uintptr_t arena,
                                           std::uint64_t bytes,
                                           const std::optional<FrameMemory>& memory) {
  return std::make_unique<MovedFrames>(loop, arena, bytes, memory);
}

}  // namespace sentinel
