// The engine of a GPU's memory over the host's: tensors keep their addresses, while the physical
// memory behind these comes and goes in chunks of a granule (cuMemMap), within a budget. What
// leaves is copied to pinned memory of the host and back on streams of the engine's own; where that
// memory is limited, a file lies below it (host_store.h).
//
// A GPU has no guard: memory must be there when a kernel is launched. So occupy() and await() leave
// tensors resident, as far as the host can know: the stream that computes is made to wait for
// copies under way by events, the calling thread never is. It waits only for a chunk, where the
// budget is used up and chunks are on their way out, for a place on the host for what has to leave,
// and for what lies in the file (counted as a stall).
//
//            occupy                demote             copied, and no kernel uses it
//   empty ----------> resident ------------> leaving --------------------------> absent
//     ^                 |  ^  ^                |                                   |
//     | its chunk is    |  |  +--- recalled ---+                                   |
//     +- taken, dead ---+  +------------------------- promote, await --------------+
//
// With a device that reads and writes the file itself, what goes that way is `leaving` until it is
// written, and recalled only before that begins; what comes that way is `arriving`, has its chunk,
// and is resident once it is filled. The launching thread waits for both, where it has to: they are
// in no stream.
//
// Unmapping is not stream-ordered. A chunk is unmapped once the event behind its last use has
// happened, which a helper thread waits for: one for what is copied out, one for what died, since
// neither's events tell when the other's happen. (Sentinel paper, section VI, orders movement by
// streams and events, too; with one stream for both ways, where here each has its own.)
//
// One lock guards all state. It is held while work is queued on streams, never while anybody waits
// for the device, nor in calls that take long: those that make memory, map, unmap and pin it. The
// granules that such a call is about are `coming` (resident next) or `going` (empty or absent
// next), and nobody else's until it returns.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/gpu/driver.h"
#include "engine/gpu/host_store.h"
#include "engine/gpu/thread_streams.h"

namespace sentinel::gpu {

struct PoolOptions {
  std::uint64_t arena_bytes = 0;  // addresses, rounded up to granules
  std::uint64_t granule_bytes = 2u << 20;
  // Left free on the device for what the program's libraries ask of it themselves (code, handles),
  // which would fail where nothing is. An op that cannot do without takes of it all the same.
  std::uint64_t spare_bytes = 0;
  HostOptions host = {};
};

// Granules that are mapped together at most: few enough that the first copy begins soon. So many
// are unmapped together, too.
constexpr std::size_t neighbours(std::uint64_t granule) {
  constexpr std::uint64_t kMost = 16, kBytes = 32u << 20;
  return std::clamp<std::uint64_t>(kBytes / granule, 1, kMost);
}

// What to leave, of so much that is free: 2 %, 512 MiB at least, but never more than an eighth.
std::uint64_t spare_of(std::uint64_t free_bytes);

class PoolEngine final : public Engine {
 public:
  // The driver outlives the engine. Throws Error.
  PoolEngine(Driver&, const PoolOptions&);
  ~PoolEngine() override;
  PoolEngine(const PoolEngine&) = delete;
  PoolEngine& operator=(const PoolEngine&) = delete;

  // On which what this thread calls for from now on is computed. One thread at a time launches
  // work: between await() and the launch no other may ask for memory, unless the clock stands until
  // both have launched. Throws Error for the default stream that each thread has of its own.
  void compute_on(Stream stream) override;
  void finish() noexcept override;
  bool share(int device) override;
  void program_ends() noexcept override;
  bool guarded() const override { return false; }
  // What an op awaits and does not find is a fault, counted before anything of it is fetched.
  void page(std::unique_ptr<Pager>) override;
  void kernel(std::uint64_t hash) noexcept override;
  void stay(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void may_leave(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  bool keep_all(bool) noexcept override;
  bool is_short() const noexcept override { return short_.load(std::memory_order_relaxed); }
  void hold_pool(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void let_pool_go(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void forget(Stream) override;
  void settle();  // waits until nothing is on its way out

  void set_budget(std::uint64_t bytes) override;

  // False: there is no room, since the op that runs uses all of the budget, or the device is full.
  // The tensor has not begun then.
  bool occupy(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  bool vacate(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept override;
  void touch(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void demote(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void sink(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void promote(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  // Ends the process where there is no room for what the op uses: session plans see to it that
  // there is.
  void await(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void reuse_dead_blocks() noexcept override {}  // occupy() does

  FaultLoop* loop() noexcept override { return nullptr; }
  int start_counting() noexcept override;
  int stop_counting() noexcept override;
  void count_with(CountFault, void*) noexcept override {}

  // A GPU's memory is not a child's.
  void before_fork() noexcept override;
  void after_fork_in_parent() noexcept override;
  void after_fork_in_child() noexcept override;

  EngineCounters counters() const override;

 private:
  using Guard = std::unique_lock<std::mutex>;
  using Index = std::uint32_t;
  using Mark = std::shared_ptr<void>;  // an event; whoever needs it holds it, under the lock
  enum class State : std::uint8_t { empty, coming, resident, leaving, going, absent, arriving };

  struct Block {
    State state = State::empty;
    bool queued = false;   // absent, going: a promotion waits for room, or for the file
    bool dead = false;     // resident: nothing lives in it
    bool late = false;     // in late_
    bool sinks = false;    // while no plan wants it here: it belongs below the host's memory
    bool written = false;  // leaving: by the device into the file, or about to be
    bool ordered = false;  // dead: what computes there next is behind its last use anyway
    std::uint32_t live = 0, wanted = 0;
    std::uint32_t pools = 0;           // that are held, in which it lies
    std::uint32_t stays = 0;           // tensors in it that may not leave
    std::uint64_t used = 0;            // the op that used it last
    std::uint64_t ticket = 0;          // leaving: of its departure
    Chunk chunk = 0;                   // neither empty nor absent
    HostStore::Place* lies = nullptr;  // not resident: where on the host or below
    // resident: its copy in, until what computes waits for it; dead: its last use, or nothing where
    // nobody has asked yet; leaving: its departure.
    Mark mark;
    std::list<Index>::iterator place;  // resident: among those by use, or the dead
  };

  // What a helper waits for. A departure that was recalled finds another ticket in its block, and
  // takes care of the place that is still being written.
  struct Departure {
    Index index;
    std::uint64_t ticket;
    Mark mark;
    HostStore::Place* place;  // null: what left was dead
  };
  // A copy in, after which its place on the host is free.
  struct Arrival {
    Mark mark;
    HostStore::Place* place;
  };
  // What ends or leaves while the lock is held: it shares events. see_off() ends that.
  struct Together {
    Mark now;     // all that was launched until now
    Mark before;  // what the copies out are behind already
    std::vector<Departure> leaving;
  };

  template <class F>
  void for_blocks(std::uintptr_t address, std::uint64_t bytes, F&& f);
  std::pair<Index, Index> blocks_of(std::uintptr_t address, std::uint64_t bytes) const;
  std::uintptr_t at(Index index) const { return arena_ + index * granule_; }

  // A call of the driver, or of the store, that takes long: without the lock.
  template <class F>
  void outside(Guard&, F&& call);
  void no_calls(Guard&);  // waits until there are none

  using Chunks = std::vector<Chunk>;
  void drop_surplus(Guard&);
  std::uint64_t most_chunks();
  bool leaves_spare(std::uint64_t promised);
  bool make_chunks(Chunks&, std::uint64_t most, Guard&);
  bool create(Chunks&, std::uint64_t count, Guard&);
  bool reuse_dead(std::uint64_t most, bool now, Guard&);
  bool find_chunks(Chunks&, std::uint64_t most, bool now, Guard&);
  void give_back(Chunks&, std::size_t keep);
  bool evict_one(Together&, Guard&);
  void send_away(std::uintptr_t address, std::uint64_t bytes, bool sinks) noexcept;
  void hold(Index first, const Chunks&, Guard&);
  void enter(Index);
  std::optional<Index> fetch(Index first, Index count, bool now, Guard&);
  std::optional<Index> fetch_below(Index, bool now, Guard&);
  bool lies_on_host(Index) const;
  void copy_in(Index first, Index count);
  void has_come(Index, Together&);
  bool on_its_way(Index, Guard&);
  Index make_resident(Index, Index most, Guard&);
  void begin_in(Index);
  void note_use();
  std::list<Index>& dead_beside(const Block& b) { return b.pools > 0 ? idle_ : dead_; }
  std::list<Index>& next_dead() { return dead_.empty() ? idle_ : dead_; }
  void change_pools(std::uintptr_t address, std::uint64_t bytes, int change) noexcept;
  bool may_go(const Block& b) const { return b.stays == 0 && !in_use(b); }
  // By the op that runs.
  bool in_use(const Block& b) const { return b.used == clock_.load(std::memory_order_relaxed); }
  std::list<Index>::iterator longest_unused();
  std::optional<Index> choose_victim();
  HostStore::Place* find_place(Guard&);
  HostStore::Place* try_place(bool sinks = false);
  void have_places(std::uint64_t count, Guard&);
  void leave(Index, HostStore::Place*, Together&);
  void see_off(Together&);
  bool leave_unwanted(Index, Together&);
  void leave_later(Index);
  void keep_for_op(Index);
  void leave_at_last();
  void bring_near(Index, Guard&);
  void ask_for(Index);
  void ask_for_all(std::uintptr_t address, std::uint64_t bytes, Guard&);
  // pool_paging.cpp
  bool pageable(const Block&) const;
  void came(Index);
  void went(Index);
  void touched(Index);
  void take_commands();
  std::optional<Index> paged_victim(bool pressing);
  void make_room_ahead(Guard&);
  void wait_for_room(Guard&);
  bool arrivals_matter() const { return store_->limited() && !arrivals_.empty(); }
  void collect_arrivals();
  void recall(Index);
  bool take_back(Index);
  void end(Index, bool wanted, Together&);
  void die(Index, Together&);
  void use(Index);
  void join();
  void gone(std::deque<Departure>& mine, Guard&);
  void let_dead_go(std::uint64_t count);
  bool has_left(const Departure&);
  void written(Index, Guard&);
  void filled(Index, Guard&);
  void let_go(Index first, Index count, Guard&);
  void fetch_queued(Guard&);
  void helper();
  void end_helper();
  void wait_for(const Mark&, Guard&);

  void await_mark(Block&);
  Mark last_use(Block&, Mark& now);
  Mark all_until_now();
  // Whether all that is computed runs one after the other.
  bool in_one_order() const { return computing_.size() <= 1 && !forgot_; }
  Mark record(Stream);

  Driver& driver_;
  ThreadStreams streams_;
  mutable std::mutex lock_;
  std::condition_variable freed_, work_;
  std::vector<Event> events_;  // of no use now
  std::vector<Block> blocks_;
  std::list<Index> by_use_;       // used longest ago first
  std::list<Index> dead_, idle_;  // died longest ago first; those in a pool
  std::deque<Departure> departures_, ends_;  // of what lives, by copies, and of what died
  std::deque<Arrival> arrivals_;
  std::deque<Index> queued_;
  std::deque<Index> late_;  // no plan wants them here, and there was no place for them
  bool room_ = false;       // there may be again
  std::uint64_t kept_ = 0;  // some of them were used in this op; 0: none
  std::uint64_t tickets_ = 0, under_way_ = 0;  // departures: ever; that have not ended
  std::uint64_t arriving_ = 0;                 // blocks that the device fills from the file
  std::uint64_t away_ = 0;                     // blocks that are absent
  std::uint64_t waiting_ = 0;                  // chunks that threads are in want of
  unsigned calling_ = 0;                       // threads in calls without the lock
  std::vector<Chunk> free_;
  // Chunks: that exist; that may; that the device had room for; that may be made before it is asked
  // again.
  std::uint64_t chunks_ = 0, budget_ = ~0ull, device_ = ~0ull, unasked_ = 0;
  // Chunks: of what lives, the most since it was last asked whether all can be kept; with more than
  // so many it is short then.
  std::uint64_t most_used_ = 0, most_kept_ = ~0ull;
  std::atomic<bool> keeps_all_ = false, short_ = false;
  std::uint64_t nothing_spare_ = 0;  // the op in which the device had no room for one more
  std::uint64_t spare_bytes_ = 0;
  std::vector<Stream> computing_;  // all that were ever computed on
  bool forgot_ = false;            // one of them, while there were others
  Stream in_ = nullptr, out_ = nullptr, join_ = nullptr;
  EngineCounters counters_;
  bool over_ = false, in_child_ = false;
  int helpers_wait_ = 0;       // for the device
  bool ending_ = false;        // the program: nothing begins that nobody waits for
  bool ended_ = false;  // the store, or the helper, for the process ends: nothing comes any more
  std::unique_ptr<HostStore> store_;
  std::unique_ptr<Pager> pager_;  // null: plans decide
  bool in_kernel_ = false;        // of the pager's
  std::thread thread_, end_thread_;
};

template <class F>
void PoolEngine::outside(Guard& guard, F&& call) {
  const auto back = [&] {
    guard.lock();
    --calling_;
    driver_.unpark(freed_);
  };
  ++calling_;
  guard.unlock();
  try {
    call();
  } catch (...) {
    back();
    throw;
  }
  back();
}

}  // namespace sentinel::gpu
