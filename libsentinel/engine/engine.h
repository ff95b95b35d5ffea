// The engine seam: holds what lies in the arena within a budget of fast memory, and moves it.
// SsdEngine keeps what is over the budget in a file and guards it (ssd_engine.h); NumaEngine
// keeps it in another NUMA node, where it is used in place (numa_engine.h); GpuEngine keeps it on
// the host, and the budget is a device's memory (gpu/gpu_engine.h).
//
// Called by the session: on_allocate() and on_free() with each tensor, the rest at op boundaries.
// Any number of threads may call; none may hold a lock that an engine's own threads need. Addresses
// are the arena's. What is noexcept either succeeds or ends the process before a wrong number is
// computed.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>

#include "capture/userfault/fault_loop.h"
#include "engine/flow.h"
#include "sentinel/error.h"
#include "sentinel/paging.h"

namespace sentinel {

// Why pages did not move at once, by the kernel's answer.
enum class MoveCause : std::uint8_t { ebusy, enomem, efault, eacces, other };
constexpr std::array kMoveCauses{"EBUSY", "ENOMEM", "EFAULT", "EACCES", "other"};

struct EngineCounters {             // since the engine began
  std::uint64_t demand_faults = 0;  // touches that had to wait for bytes from the slow tier
  std::uint64_t promoted_bytes = 0, demoted_bytes = 0;  // as really moved
  std::uint64_t unwritten_bytes = 0;  // left without a write: the file had the same bytes
  std::uint64_t pieces = 0;           // of the promoted: parts of blocks that were read alone
  Flow reading, writing;              // whole blocks, from and to a file
  double stall_us = 0;                // time in which a training thread waited for memory
  double checksum_us = 0;  // time that sums and digests of what goes to and comes from a file took
  std::uint64_t discarded_bytes = 0, refilled_bytes = 0;  // of tensors that are made again
  std::uint64_t held_bytes = 0;                           // of fast memory, now
  std::uint64_t peak_bytes = 0;                           // the most of it since the budget was set
  std::array<std::uint64_t, kMoveCauses.size()> causes{};  // pages, by MoveCause
  std::uint64_t pages_left = 0;  // that stayed where they were, after every retry
};

// How a promotion stands when its op begins: the paper's Cases 1, 2 and 3 (section IV-D).
enum class Arrival : std::uint8_t { in_time, no_room, no_time };

// The slow tier is used where it is: nothing has to be awaited. No budget is set before there is a
// plan: until the first set_budget() nothing is in fast memory, and on_allocate() answers false.
class InPlaceMemory {
 public:
  virtual Arrival arrival(std::uintptr_t address, std::uint64_t bytes) const noexcept = 0;
  // In slow memory stays what has not come.
  virtual void leave(std::uintptr_t address, std::uint64_t bytes) noexcept = 0;
  virtual std::uint64_t fast_bytes(std::uintptr_t address, std::uint64_t bytes) const noexcept = 0;

 protected:
  ~InPlaceMemory() = default;
};

// A device's memory whose contents can be given up (Engine::discard). What is launched is computed
// later, so whoever compares what was made asks here. It knows the stream of the calling thread.
class DeviceContents {
 public:
  // The bytes of a tensor are in the host's memory / come from there, behind all that this thread
  // has launched. It waits for that.
  virtual void read(std::uintptr_t, std::uint64_t, void*) noexcept = 0;
  virtual void write(std::uintptr_t, std::uint64_t, const void*) noexcept = 0;
  // This thread has launched what uses it and no op names: what another stream computes with it
  // from now on waits for that.
  virtual void used_here(std::uintptr_t, std::uint64_t) noexcept = 0;

 protected:
  ~DeviceContents() = default;
};

// The fast tier is a device's memory, which has no guard.
class DeviceMemory {
 public:
  // The stream on which the calling thread computes from now on. Throws Error.
  virtual void compute_on(void* stream) = 0;
  // Before whoever made the stream destroys it. Nothing is launched there any more.
  virtual void forget(void* stream) = 0;
  virtual DeviceContents* contents() noexcept { return nullptr; }  // null: they cannot be given up
  // Waits until all has been computed that was launched until now.
  virtual void finish() noexcept = 0;
  // Another device is computed on, too; tensors here may be copied to and from it by that device.
  // False: it has no way to. Throws Error.
  virtual bool share(int /*device*/) { return true; }
  // Before the program's libraries end: those that move memory are asked no more, and no thread of
  // the engine is in a call of the driver when this returns. It waits for some seconds at most.
  virtual void program_ends() noexcept {}

  // A tensor that no op names, a library's workspace say, may not leave / may again.
  virtual void pin(std::uintptr_t, std::uint64_t) noexcept {}
  virtual void unpin(std::uintptr_t, std::uint64_t) noexcept {}
  // As long as this is asked for nothing that lives leaves, and ops need not tell which tensors
  // they use. False: it is not so, for something is away or little is free.
  virtual bool keep_all(bool) noexcept { return false; }
  // Little is free by now: memory is refused before long. Takes no lock.
  virtual bool is_short() const noexcept { return false; }

  // A plan's pool, whose tensors live briefly, is held / let go: the memory of a tensor that dies
  // in it is for one that begins in it, and no fetch ahead of need takes it.
  virtual void hold_pool(std::uintptr_t, std::uint64_t) noexcept {}
  virtual void let_pool_go(std::uintptr_t, std::uint64_t) noexcept {}

 protected:
  ~DeviceMemory() = default;
};

// A pager may decide what leaves and what is fetched ahead, in the place of a plan.
class DemandPaging {
 public:
  // It decides from now on; null: nobody does. Throws Error where that cannot be.
  virtual void page(std::unique_ptr<Pager>) = 0;
  // What is awaited from now on is for a kernel of this name and these arguments, as a hash.
  virtual void kernel(std::uint64_t hash) noexcept = 0;

 protected:
  ~DemandPaging() = default;
};

// Who makes again what was discarded. touched() is called by the guard's thread, with the beginning
// of a lost block: it blocks for nothing and allocates nothing. The thread that touched waits until
// refill() has come for its block.
class Remaker {
 public:
  virtual void touched(std::uintptr_t) noexcept = 0;

 protected:
  ~Remaker() = default;
};

class Engine {
 public:
  virtual ~Engine() = default;

  std::uintptr_t arena() const { return arena_; }
  std::uint64_t arena_bytes() const { return arena_bytes_; }
  std::uint64_t granule() const { return granule_; }  // in which space is held and moved
  // Tensors begin at multiples of it, so several may share a granule. Without a guard their sizes
  // are multiples of it too, so that plans, which lay small ones side by side, keep it.
  std::uint64_t alignment() const { return alignment_; }
  bool contains(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - arena_ < arena_bytes_;
  }

  // Holds fast memory within `bytes` from now on (0: no limit), and returns once that is so.
  // Throws Error.
  virtual void set_budget(std::uint64_t bytes) = 0;
  // The same, with a time limit. False: more is held still, and the caller sets another budget.
  virtual bool shrink_budget(std::uint64_t bytes, double /*most_s*/) {
    set_budget(bytes);
    return true;
  }

  // A tensor begins / ceases to lie at [address, address + bytes). The session notes whether it is
  // `wanted`, in fast memory as far as the plan goes. on_allocate() answers that for its beginning,
  // promote() makes it so, with or without room, and demote() ends it. on_free() answers whether
  // all its granules are left with fast memory, which makes them the place for the next tensor of
  // that size.
  virtual bool on_allocate(std::uintptr_t address, std::uint64_t bytes) noexcept = 0;
  virtual bool on_free(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept = 0;
  // The op about to run uses it.
  virtual void touch(std::uintptr_t, std::uint64_t) noexcept {}
  // The op about to run, whose tensors are touched next, uses more than fits. `name` is the same in
  // each step. If it uses all side by side, tensors that begin in it get memory as they are
  // touched: one that it has not written yet would be the first to leave.
  virtual void begin_oversized_op(std::uint64_t name, bool side_by_side) {
    static_cast<void>(name), static_cast<void>(side_by_side);
  }
  // The tensor that has just begun there ends in the same op.
  virtual void transient(std::uintptr_t, std::uint64_t) noexcept {}

  // Whether a touch of what is elsewhere brings it. Where nothing does (a GPU's kernels), all that
  // an op uses has to be awaited before it is launched, a tensor that on_allocate() refuses has not
  // begun, and an op's end is not the end of its computing.
  bool guarded() const { return guarded_; }

  // What only one kind of engine has; null where it is of another kind. Asked for once.
  virtual InPlaceMemory* in_place() noexcept { return nullptr; }
  virtual DeviceMemory* device() noexcept { return nullptr; }
  virtual DemandPaging* paging() noexcept { return nullptr; }

  // The tensor's granules leave once no other wanted tensor lies in them / come back. The
  // session does not repeat a promotion that finds no room, and demotes it later. It calls both for
  // single granules too (address, 1), which are to stay when a tensor leaves (kept_borders.h).
  virtual void demote(std::uintptr_t address, std::uint64_t bytes) noexcept = 0;
  // The same, when somebody needs their space.
  virtual void release(std::uintptr_t address, std::uint64_t bytes) noexcept {
    demote(address, bytes);
  }
  // The same, into the tier below the slow one, where there is one.
  virtual void sink(std::uintptr_t address, std::uint64_t bytes) noexcept {
    demote(address, bytes);
  }
  virtual void promote(std::uintptr_t address, std::uint64_t bytes) noexcept = 0;
  // The op about to run writes all of this tensor and reads nothing: its contents may be lost.
  virtual void overwrite(std::uintptr_t, std::uint64_t) noexcept {}
  // Waits until a promotion has been completed, as far as it can be; counted as a stall.
  virtual void await(std::uintptr_t address, std::uint64_t bytes) noexcept = 0;
  // A new op begins: the clock that use is measured with.
  void tick() noexcept { clock_.fetch_add(1, std::memory_order_relaxed); }
  // Without a guard: whether an op has begun to use tensors and has not ended. While one has,
  // nothing that was used since the last tick is demoted: it may be about to be launched.
  void launching(bool now) noexcept { launching_.store(now, std::memory_order_relaxed); }

  // The tensor's contents are given up, for they can be made again: blocks in which no other tensor
  // lives are lost, those at its ends if they may go. Answers their bytes; the rest stays as it is.
  // An engine that cannot answers 0. A tensor that begins in a lost end waits, when it is touched,
  // until the first one has been made again: by nobody who holds a lock that a replay takes.
  // / Each block that is lost with that tensor gets its part of `source` and is resident, for all
  // readers at once; what is not lost is left alone.
  struct Ends {
    bool first = true, last = true;  // blocks that are partly within it
  };
  virtual std::uint64_t discard(std::uintptr_t, std::uint64_t, Ends) noexcept { return 0; }
  virtual void refill(std::uintptr_t, std::uint64_t, const void*) noexcept {}
  virtual void remake_with(Remaker*) {}  // it outlives the engine

  // Memory that dead tensors still hold serves the next ones, wherever those lie. The caller sees
  // to it that no tensor is born meanwhile.
  virtual void reuse_dead_blocks() noexcept {}

  // From moving to counting through page faults and back, contents and addresses unchanged; other
  // threads may use the arena all along. A negative errno: nothing has changed.
  virtual FaultLoop* loop() noexcept { return nullptr; }  // null: no faults can be had here
  virtual int start_counting() noexcept { return -EOPNOTSUPP; }
  virtual int stop_counting() noexcept { return -EOPNOTSUPP; }
  bool counting() const { return counting_; }
  // Counting without that switch, where the kernel can: from then on pages of the arena may be
  // barred (FaultLoop::bar()), private as they are / none is any more.
  virtual bool can_bar() const noexcept { return false; }
  virtual int start_barring() noexcept { return -EOPNOTSUPP; }
  virtual void stop_barring() noexcept {}
  // Faults of resident memory while counting go here; false: nobody counts that page. When this
  // returns, the former source is no longer called.
  using CountFault = bool (*)(void* source, const Fault&) noexcept;
  virtual void count_with(CountFault, void* /*source*/) noexcept {}

  // The kernel's source has counted: it splits huge pages, which are made whole again where that is
  // possible.
  virtual void counted_in_kernel() noexcept {}

  // Around fork(): before() leaves nothing in flight and holds the lock. Nothing moves in a child.
  virtual void before_fork() noexcept = 0;
  virtual void after_fork_in_parent() noexcept = 0;
  virtual void after_fork_in_child() noexcept = 0;

  virtual EngineCounters counters() const = 0;

 protected:
  std::uintptr_t arena_ = 0;
  std::uint64_t arena_bytes_ = 0, granule_ = 0, alignment_ = 64;
  bool guarded_ = true;
  std::atomic<bool> counting_ = false;
  std::atomic<std::uint64_t> clock_ = 1;
  std::atomic<bool> launching_ = false;
};

}  // namespace sentinel
