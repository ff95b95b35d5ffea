// When blocks were used, by the clock of ops, and how the op that runs uses its blocks. It knows
// no frame and no queue.
//
// A block's `used` is the number of an op. Its lower bits are the order in which the blocks of that
// op came. The engine's lock guards all but the clock, which is atomic.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "engine/host/limits.h"
#include "engine/ssd/blocks.h"

namespace sentinel {

class FrameUse {
 public:
  // What one instruction can touch: two operands, each across a boundary.
  static constexpr std::uint64_t kFramesPerThread = 4;
  // Threads whose instructions have their frames at the same time; of more, others wait for a turn.
  static constexpr unsigned kThreadsAtOnce = 6;

  static constexpr std::uint64_t frames_at_once(unsigned threads) {
    return kFramesPerThread * std::min(threads, kThreadsAtOnce);
  }

  explicit FrameUse(const std::atomic<std::uint64_t>& clock) : clock_(clock) {}

  std::uint64_t op() const noexcept { return clock_.load(std::memory_order_relaxed); }
  // A time in front of all blocks that come in this op, and one behind them.
  std::uint64_t now() const noexcept { return op() << kOrderBits; }
  std::uint64_t next() const noexcept { return (op() + 1) << kOrderBits; }
  static std::uint64_t op_of(const FrameBlock& block) noexcept { return block.used >> kOrderBits; }

  // A block is asked for or born.
  void came() noexcept { arrivals_ += 2; }
  std::uint64_t born(std::uint64_t now) noexcept {
    came();
    return now | (arrivals_ & kOrder);
  }
  // The block has become resident. One that a thread has faulted for comes behind those that were
  // read ahead with it.
  void arrived(FrameBlock& block, std::uint64_t now) noexcept {
    if (block.faulted) came();
    const auto order = (block.faulted ? arrivals_ : arrivals_ - 1) & kOrder;
    block.used = std::max<std::uint64_t>(block.used & ~kOrder, now) | order;
  }

  // Whether it has just come for the op that runs, so that the instruction that asked for it may
  // not have been done yet: as many as the instructions of all threads in turn take. What was read
  // ahead with them is as fresh as they are.
  bool fresh(const FrameBlock& block) const noexcept {
    static const std::uint64_t kept = frames_at_once(thread_count());
    return op_of(block) == op() && ((arrivals_ - block.used) & kOrder) < 2 * kept;
  }

  // Whether the thread, which waits for a block, comes before those that are not in turn. It stays
  // so until it has not waited for as many arrivals as threads in turn have frames: then the
  // instruction that waited last is done.
  bool in_turn(pid_t thread) noexcept {
    constexpr auto kFrames = frames_at_once(kThreadsAtOnce);
    const auto is = [&](const Turn& turn) { return turn.thread == thread; };
    const auto over = [&](const Turn& turn) { return arrivals_ - turn.waited > 2 * kFrames; };
    auto found = std::ranges::find_if(turns_, is);
    if (found == turns_.end()) found = std::ranges::find(turns_, 0, &Turn::thread);
    if (found == turns_.end()) found = std::ranges::find_if(turns_, over);
    if (found == turns_.end()) return false;
    *found = {thread, arrivals_};
    return true;
  }

  // The op goes through more than fits: it has to give up blocks of its own, or is going to.
  void gives_up(std::uint64_t op) noexcept { streamed_ = op; }
  bool streams() const noexcept { return streamed_ == op() || side_by_side(); }
  // It goes through all that it uses, in turns.
  void goes_side_by_side() noexcept { side_by_side_ = op(); }
  bool side_by_side() const noexcept { return side_by_side_ == op(); }

 private:
  struct Turn {
    pid_t thread = 0;          // 0: nobody's
    std::uint64_t waited = 0;  // arrivals_ when it last began to wait
  };

  static constexpr unsigned kOrderBits = 24;
  static constexpr std::uint64_t kOrder = (std::uint64_t{1} << kOrderBits) - 1;

  const std::atomic<std::uint64_t>& clock_;
  std::uint64_t streamed_ = 0;      // the last op that had to give up blocks of its own
  std::uint64_t side_by_side_ = 0;  // the last one of which begin_oversized_op() said so
  std::uint64_t arrivals_ = 2;      // twice those demanded or born: orders blocks used in one tick
  std::array<Turn, kThreadsAtOnce> turns_;
};

}  // namespace sentinel
