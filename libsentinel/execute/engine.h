// The engine: holds the arena's blocks within a budget of frames. Demand keeps every access right
// (the guard); a plan's moves, given as demote() and promote(), only make it fast.
//
// Threads: the *guard* (the FaultLoop's thread) answers touches of absent blocks; the *promoter*
// reads blocks in, the *demoter* writes blocks out; any number of training threads call the public
// functions. One lock, `lock_`, guards all state; it is held across fork() and while the file
// grows, but never while a frame or bytes move or the arena is touched, so the guard soon gets it.
//
// Deadlock freedom: demand takes precedence over prefetch, prefetch never evicts, an eviction waits
// for nothing but its own write, and demand evicts whatever is not being moved. So whoever waits
// for a block gets it as long as the budget is minimum_bytes() or more.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "execute/blocks.h"
#include "execute/executors.h"

namespace sentinel {

struct EngineOptions {
  std::string slow_directory;
  bool allow_memory_tier = false;
  IoBackend io = IoBackend::automatic;
  bool use_move = true;  // false: as on a kernel without UFFDIO_MOVE
  std::size_t depth = 8;
  std::string inject;
  std::uint64_t arena_bytes = 0;  // addresses, a multiple of the granule
};

struct EngineCounters {             // since the engine began
  std::uint64_t demand_faults = 0;  // touches that had to wait for bytes from the slow tier
  std::uint64_t promoted_bytes = 0, demoted_bytes = 0;
  double stall_us = 0;            // time in which a training thread waited for a block
  std::uint64_t peak_frames = 0;  // since the budget was set
};

class Engine {
 public:
  explicit Engine(const EngineOptions&);  // throws Error
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  std::uintptr_t arena() const { return arena_; }
  std::uint64_t arena_bytes() const { return arena_bytes_; }
  bool contains(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - arena_ < arena_bytes_;
  }
  FaultLoop& loop() { return *loop_; }

  // The smallest budget that keeps `threads` threads going.
  static std::uint64_t minimum_bytes(unsigned threads, std::size_t depth);

  // Holds frames within `bytes` from now on; what is over goes to the slow tier, which is opened
  // when first needed. Returns once the budget holds. Throws Error.
  void set_budget(std::uint64_t bytes);
  std::uint64_t budget() const { return budget_frames_ * kGranule; }

  // A tensor begins / ceases to lie at [address, address + bytes). `wanted`: see promote/demote.
  void occupy(std::uintptr_t address, std::uint64_t bytes) noexcept;
  void vacate(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept;
  // The op about to run uses it: it is evicted after what was used earlier.
  void touch(std::uintptr_t address, std::uint64_t bytes) noexcept;

  // The tensor's blocks leave once no other wanted tensor lies in them / come back.
  void demote(std::uintptr_t address, std::uint64_t bytes) noexcept;
  void promote(std::uintptr_t address, std::uint64_t bytes) noexcept;
  // Waits until each of its blocks has been resident; the wait is counted as a stall.
  void await(std::uintptr_t address, std::uint64_t bytes) noexcept;
  // A new op begins: the clock that `used` is measured with.
  void tick() noexcept { clock_.fetch_add(1, std::memory_order_relaxed); }

  // Frames that dead tensors still hold serve the next ones, wherever those lie. The caller sees to
  // it that no tensor is born meanwhile.
  void reuse_dead_blocks() noexcept;

  // From moving to counting and back, contents and addresses unchanged; other threads may use the
  // arena all along. -EBUSY: a page is pinned by somebody; nothing has changed.
  int start_counting() noexcept;
  int stop_counting() noexcept;
  // Faults of resident blocks while counting go here; false: nobody counts that page.
  using CountFault = bool (*)(void* source, const Fault&) noexcept;
  void count_with(CountFault, void* source) noexcept;
  bool counting() const { return counting_; }

  // Around fork(): before() leaves nothing in flight and holds the lock. In the child the engine
  // serves what the parent had moved out, from the same file; nothing is moved there any more.
  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  void after_fork_in_child() noexcept;

  EngineCounters counters() const;

 private:
  using Guard = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  // guard.cpp: the fault path
  static void on_missing(void* self, const Fault&) noexcept;
  static void on_minor(void* self, const Fault&) noexcept;
  bool count_fault(const Fault&) noexcept;
  void on_fault(BlockIndex, Guard&) noexcept;
  void read_ahead(BlockIndex) noexcept;

  // movers.cpp: the two migration threads
  void promoter() noexcept;
  void demoter() noexcept;
  void start_promotions(Guard&) noexcept;
  void start_demotions(Guard&) noexcept;
  bool start_promotion(BlockIndex, Guard&) noexcept;
  bool give(BlockIndex, Guard&) noexcept;
  void install(BlockIndex, Token, Guard&) noexcept;
  void discard(BlockIndex, Token) noexcept;
  void take_out(BlockIndex, Guard&) noexcept;
  void arrived(const Completion&, Guard&) noexcept;
  void left(const Completion&, Guard&) noexcept;

  // engine.cpp
  void open_slow_tier();
  void demand(BlockIndex) noexcept;
  void make_absent_or_empty(Block&) noexcept;
  void set_resident(BlockIndex) noexcept;
  void unset_resident(BlockIndex) noexcept;
  Token free_frame(Guard&) noexcept;
  void want_frames(std::size_t count) noexcept;
  bool fresh(const Block&) const noexcept;
  bool frames_short() const noexcept;
  void reclaim_dead() noexcept;
  void evict(BlockIndex) noexcept;
  void keep(BlockIndex) noexcept;
  void look_again() noexcept;
  void release_slot(Block&) noexcept;
  void wait_until_settled(Guard&) noexcept;
  void begin_wait() noexcept;
  void end_wait() noexcept;
  [[noreturn]] void fail(const char* what, int error) noexcept;

  // counting.cpp, fork.cpp
  int replace_arena(const std::function<std::uintptr_t()>& prepare, bool minor) noexcept;
  int to_shared() noexcept;
  int to_moved() noexcept;
  void drop_dead_blocks() noexcept;
  void copy_back(BlockIndex) noexcept;
  void thaw() noexcept;
  void serve_child() noexcept;
  static void on_missing_in_child(void* self, const Fault&) noexcept;

  template <class F>
  void for_blocks(std::uintptr_t address, std::uint64_t bytes, F&& f) {
    const auto first = (address - arena_) / kGranule;
    const auto last = (address - arena_ + (bytes == 0 ? 0 : bytes - 1)) / kGranule;
    for (auto i = first; i <= last; ++i) f(static_cast<BlockIndex>(i));
  }

  EngineOptions options_;
  std::uint64_t arena_bytes_;
  std::uintptr_t arena_;
  std::unique_ptr<FaultLoop> loop_;
  std::unique_ptr<SharedFrames> shared_;
  std::unique_ptr<Backing> frames_in_pool_;  // for training
  Backing* backing_ = nullptr;               // the one in use
  std::atomic<bool> counting_ = false;
  std::atomic<CountFault> count_fault_ = nullptr;
  std::atomic<void*> count_source_ = nullptr;
  std::atomic<std::uint64_t> clock_ = 1;

  mutable std::mutex lock_;  // guards all below
  std::vector<Block> blocks_;
  BlockQueue demanded_, prefetches_, evictions_;
  std::vector<BlockIndex> resident_;
  std::vector<Token> free_;
  std::uint64_t frames_ = 0;  // in the arena, free and in flight
  std::uint64_t budget_frames_;
  std::uint64_t arrivals_ = 0;  // orders blocks used in the same tick
  std::size_t arriving_ = 0, leaving_ = 0;
  bool frozen_ = false, stop_ = false, child_ = false;
  std::size_t waiters_ = 0;  // threads waiting for a block now
  Clock::time_point wait_began_;
  EngineCounters counters_;
  std::condition_variable settled_;  // a block or a frame changed its state

  std::unique_ptr<SlowFile> slow_;
  std::unique_ptr<Executor> reader_, writer_;
  std::thread promoter_, demoter_;
  int child_pipe_[2] = {-1, -1};
  std::uintptr_t child_buffer_ = 0;
};

}  // namespace sentinel
