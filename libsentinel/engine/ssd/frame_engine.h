// The engine of a slow tier that no program can read in place, a file: holds the arena's blocks
// within a budget of frames. Demand keeps every access right
// (the guard); a plan's moves, given as demote() and promote(), only make it fast.
//
// Threads: the *guard* (the FaultLoop's thread) answers touches of absent blocks; the *promoter*
// reads blocks in, the *demoter* writes blocks out; any number of training threads call the public
// functions. One lock, `lock_`, guards all state; it is held across fork() and while the file
// grows, but never while a frame moves, blocks are transferred or the arena is touched, so the
// guard soon gets it. (Pieces, 1 MiB at most, are put in place with it.)
//
// Deadlock freedom: demand takes precedence over prefetch, which evicts only what nobody wants or
// uses, and over room made ahead, which leaves what has just come where it is; an eviction waits
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
#include <utility>
#include <vector>

#include "base/kept_memory.h"
#include "engine/engine.h"
#include "engine/io/executors.h"
#include "engine/ssd/blocks.h"
#include "engine/ssd/pieces.h"

namespace sentinel {

constexpr const char* kLocked =
    "this program has locked memory of tensors (mlock, mlockall), which cannot be moved then";

struct EngineOptions {
  std::string slow_directory;
  bool allow_memory_tier = false;
  IoBackend io = IoBackend::automatic;
  bool use_move = true;  // false: as on a kernel without UFFDIO_MOVE
  std::size_t depth = 8;
  std::string inject;
  ChecksumLevel checksums = ChecksumLevel::sampled;
  std::uint64_t arena_bytes = 0;  // addresses, a multiple of the granule
};

class FrameEngine final : public Engine {
 public:
  explicit FrameEngine(const EngineOptions&);  // throws Error
  ~FrameEngine() override;
  FrameEngine(const FrameEngine&) = delete;
  FrameEngine& operator=(const FrameEngine&) = delete;

  // The smallest budget that keeps `threads` threads going.
  static std::uint64_t minimum_bytes(unsigned threads, std::size_t depth);

  // What is over goes to the slow tier, which is opened when first needed.
  void set_budget(std::uint64_t bytes) override;

  bool occupy(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  bool vacate(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept override;
  // It is evicted after what was used earlier.
  void touch(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void stream() noexcept override;
  void brief(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void demote(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void release(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void promote(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void overwrite(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void await(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void reuse_dead_blocks() noexcept override;

  FaultLoop* loop() noexcept override { return loop_.get(); }
  int start_counting() noexcept override;  // -EBUSY: a page is pinned by somebody
  int stop_counting() noexcept override;   // -EBUSY likewise: training cannot go on then
  void count_with(CountFault, void* source) noexcept override;

  // A child is served what the parent had moved out, from the same file.
  void before_fork() noexcept override;
  void after_fork_in_parent() noexcept override;
  void after_fork_in_child() noexcept override;

  EngineCounters counters() const override;

 private:
  using Guard = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  // frame_guard.cpp: the fault path
  static void on_missing(void* self, const Fault&) noexcept;
  static void on_minor(void* self, const Fault&) noexcept;
  static void on_lost(void* self) noexcept;
  bool count_fault(const Fault&) noexcept;
  bool serve_piece(const Fault&, BlockIndex, Guard&) noexcept;
  void look_again(const Fault&) noexcept;
  void on_fault(BlockIndex, Guard&) noexcept;
  void give_ahead(BlockIndex, Guard&) noexcept;
  void read_ahead(BlockIndex) noexcept;

  // frame_movers.cpp: the two migration threads
  void promoter() noexcept;
  void demoter() noexcept;
  void start_promotions(Guard&) noexcept;
  void start_demotions(Guard&) noexcept;
  bool start_promotion(BlockIndex, Guard&) noexcept;
  bool give(BlockIndex, Guard&, bool asked = true) noexcept;
  void install(BlockIndex, Token, Guard&) noexcept;
  void discard(BlockIndex, Token) noexcept;
  bool take(BlockIndex, Guard&) noexcept;
  void take_out(BlockIndex, Guard&) noexcept;
  void put_back(BlockIndex, Guard&) noexcept;
  void arrived(const Completion&, Guard&) noexcept;
  void left(const Completion&, Guard&) noexcept;

  // frame_engine.cpp
  void open_slow_tier();
  void demand(BlockIndex) noexcept;
  void read_no_more(BlockIndex) noexcept;
  void make_absent_or_empty(Block&) noexcept;
  void give_at_once(BlockIndex, Guard&) noexcept;
  void set_resident(BlockIndex) noexcept;
  void unset_resident(BlockIndex) noexcept;
  Token free_frame(Guard&) noexcept;
  void now_free(Token) noexcept;
  void drop_pieces() noexcept;
  void evict(BlockIndex) noexcept;
  void keep(BlockIndex) noexcept;
  void feed_promoter() noexcept;
  void look_again() noexcept;
  void release_slot(Block&) noexcept;
  void wait_until_settled(Guard&) noexcept;
  void begin_wait() noexcept;
  void end_wait() noexcept;
  [[noreturn]] void fail(const char* what, int error) noexcept;

  // frame_victims.cpp: which blocks leave
  // What one instruction can touch: two operands, each across a boundary.
  static constexpr std::uint64_t kFramesPerThread = 4;
  // In the order in which blocks leave.
  enum class Rank : std::uint8_t { unwanted, unused, used, looped, brief, fresh, stuck };
  void want_frames(std::size_t count, Rank last = Rank::stuck) noexcept;
  std::pair<Rank, std::uint64_t> rank(const Block&) const noexcept;
  bool streams() const noexcept;
  bool side_by_side() const noexcept;
  bool lacks_frame() const noexcept { return free_.empty() && frames_ >= budget_frames_; }
  bool frame_at_hand() const noexcept;
  std::size_t room_ahead() const noexcept;
  void make_room_ahead() noexcept;
  bool fresh(const Block&) const noexcept;
  void note_dead(BlockIndex) noexcept;
  void no_longer_idle(BlockIndex) noexcept;
  void reclaim() noexcept;
  void reuse_dead(Guard&) noexcept;
  void give_up(BlockIndex, Guard&) noexcept;

  // frame_counting.cpp, frame_fork.cpp
  int make_shared_frames() noexcept;
  int replace_arena(const std::function<std::uintptr_t()>& prepare, bool minor) noexcept;
  int to_shared() noexcept;
  int to_moved() noexcept;
  void drop_dead_blocks() noexcept;
  void copy_back(BlockIndex) noexcept;
  void thaw() noexcept;
  void show_arena(bool shown) noexcept;
  void tell_of_unserved(int error) noexcept;
  int serve_child() noexcept;
  void refuse_child(int error) noexcept;
  static void on_missing_in_child(void* self, const Fault&) noexcept;
  int place_in_child(BlockIndex) noexcept;

  template <class F>
  void for_blocks(std::uintptr_t address, std::uint64_t bytes, F&& f) {
    const auto first = (address - arena_) / kGranule;
    const auto last = (address - arena_ + (bytes == 0 ? 0 : bytes - 1)) / kGranule;
    for (auto i = first; i <= last; ++i) f(static_cast<BlockIndex>(i));
  }

  EngineOptions options_;
  const std::string shown_directory_;  // fail() allocates nothing
  std::unique_ptr<FaultLoop> loop_;
  std::unique_ptr<SharedFrames> shared_;     // while counting
  std::uint64_t pinned_ = pinned_bytes();    // before there was a tensor
  std::unique_ptr<Backing> frames_in_pool_;  // for training
  Backing* backing_ = nullptr;               // the one in use
  std::atomic<CountFault> count_fault_ = nullptr;
  std::atomic<void*> count_source_ = nullptr;

  mutable std::mutex lock_;  // guards all below
  std::vector<Block> blocks_;
  BlockQueue demanded_, ahead_, prefetches_, evictions_, dead_, spare_;
  std::vector<BlockIndex> resident_;
  std::vector<Token> free_;
  std::unique_ptr<Pieces> pieces_;  // null: no write protection here
  std::uint64_t frames_ = 0;        // in the arena, free, in flight and given to pieces
  std::uint64_t budget_frames_;
  std::uint64_t streamed_ = 0;      // the last op that had to give up blocks of its own
  std::uint64_t side_by_side_ = 0;  // the last one of which stream() said so
  std::uint64_t arrivals_ = 2;      // twice those demanded or born: orders blocks used in one tick
  std::size_t arriving_ = 0, leaving_ = 0;
  bool frozen_ = false, stop_ = false, child_ = false;
  bool starved_ = false;     // the promoter waits for a frame
  bool pieces_next_ = true;  // of pieces and a demand that both lack frames
  std::size_t waiters_ = 0;  // threads waiting for a block now
  Clock::time_point wait_began_;
  EngineCounters counters_;
  FlowMeter reading_, writing_;
  std::condition_variable settled_;  // a block or a frame changed its state

  std::unique_ptr<SlowFile> slow_;
  std::unique_ptr<Executor> reader_, writer_;
  std::thread promoter_, demoter_;
  bool arena_shown_ = true;  // to the child that is being forked
  // Faults that had been resolved; how many of those that were looked at were not, in turn.
  std::uint32_t answered_ = 0, missing_in_turn_ = 0;
  bool told_of_unserved_ = false;
  std::uintptr_t child_buffer_ = 0;  // in a child: one granule
};

}  // namespace sentinel
