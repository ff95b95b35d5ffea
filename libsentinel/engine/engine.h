// The engine seam: holds what lies in the arena within a budget of fast memory, and moves it.
// FrameEngine keeps what is over the budget in a file and guards it (frame_engine.h); NodeEngine
// keeps it in another NUMA node, where it is used in place (node_engine.h).
//
// Called by the session: occupy and vacate with each tensor, the rest at op boundaries. Any number
// of threads may call; none may hold a lock that an engine's own threads need. Addresses are the
// arena's. What is noexcept either succeeds or ends the process before a wrong number is computed.
#pragma once

#include <array>
#include <atomic>
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
  std::uint64_t pieces = 0;      // of the promoted: parts of blocks that were read alone
  Flow reading, writing;         // whole blocks, from and to a file
  double stall_us = 0;           // time in which a training thread waited for memory
  double checksum_us = 0;        // time that the sums of what goes to and comes from a file took
  std::uint64_t held_bytes = 0;  // of fast memory, now
  std::uint64_t peak_bytes = 0;  // the most of it since the budget was set
  std::array<std::uint64_t, kMoveCauses.size()> causes{};  // pages, by MoveCause
  std::uint64_t pages_left = 0;  // that stayed where they were, after every retry
};

// How a promotion stands when its op begins: the paper's Cases 1, 2 and 3 (section IV-D).
enum class Arrival : std::uint8_t { in_time, no_room, no_time };

class Engine {
 public:
  virtual ~Engine() = default;

  std::uintptr_t arena() const { return arena_; }
  std::uint64_t arena_bytes() const { return arena_bytes_; }
  std::uint64_t granule() const { return granule_; }  // in which space is held and moved
  // Tensors begin at multiples of it. Without a guard they are multiples of it too, so that plans,
  // which lay small ones side by side, keep it.
  std::uint64_t alignment() const { return alignment_; }
  bool contains(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - arena_ < arena_bytes_;
  }

  // Holds fast memory within `bytes` from now on (0: no limit), and returns once that is so.
  // Throws Error.
  virtual void set_budget(std::uint64_t bytes) = 0;

  // A tensor begins / ceases to lie at [address, address + bytes). Whether it is in fast memory as
  // far as the plan goes, is `wanted`: occupy() answers it, demote() ends it, promote() begins it.
  // vacate() answers whether all its granules are left with fast memory, which makes them the place
  // for the next tensor of that size.
  virtual bool occupy(std::uintptr_t address, std::uint64_t bytes) noexcept = 0;
  virtual bool vacate(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept = 0;
  // The op about to run uses it.
  virtual void touch(std::uintptr_t, std::uint64_t) noexcept {}
  // The op about to run goes through more than fits, side by side: what begins in it gets memory as
  // it is touched, for what it has not written yet would be the first to leave.
  virtual void stream() noexcept {}
  // What has just begun there ends in the same op.
  virtual void brief(std::uintptr_t, std::uint64_t) noexcept {}

  // Whether a touch of what is elsewhere brings it. Where nothing does (a GPU's kernels), all that
  // an op uses has to be awaited before it is launched, a tensor that occupy() refuses has not
  // begun, and an op's end is not the end of its computing.
  virtual bool guarded() const { return true; }
  // There: the stream on which the calling thread computes from now on (throws Error), and the
  // wait until that has been computed which was launched there until now.
  virtual void compute_on(void* /*stream*/) {}
  // Before whoever made the stream destroys it. Nothing is launched there any more.
  virtual void forget(void* /*stream*/) {}
  virtual void finish() noexcept {}
  // There: another device is computed on, too; what lies here may be copied to and from it by that
  // device. False: it has no way to. Throws Error.
  virtual bool share(int /*device*/) { return true; }
  // There, before the program's libraries end: those that move memory are asked no more, and no
  // thread of the engine is in a call of the driver when this returns. It waits for some seconds
  // at most.
  virtual void program_ends() noexcept {}
  // There: from now on a pager decides what leaves and what is fetched ahead, in the place of a
  // plan. Throws Error where that cannot be. And: what is awaited from now on is for a kernel of
  // this name and these arguments, as a hash.
  virtual void page(std::unique_ptr<Pager>) {
    throw Error("page faults decide on a GPU's memory only");
  }
  virtual void kernel(std::uint64_t /*hash*/) noexcept {}
  // There: a tensor that no op names, a library's workspace say, may not leave / may again.
  virtual void stay(std::uintptr_t, std::uint64_t) noexcept {}
  virtual void may_leave(std::uintptr_t, std::uint64_t) noexcept {}

  // There: as long as this is asked for nothing that lives leaves, and ops need not tell what they
  // use. False: it is not so, for something is away or little is free. Whether that has become of
  // what is free: memory is refused before long. Takes no lock.
  virtual bool keep_all(bool) noexcept { return false; }
  virtual bool is_short() const noexcept { return false; }

  // There: a plan's pool, whose tensors live briefly: the memory of what dies in it is for what
  // begins there, and no fetch ahead of need takes it / is like all other.
  virtual void hold_pool(std::uintptr_t, std::uint64_t) noexcept {}
  virtual void let_pool_go(std::uintptr_t, std::uint64_t) noexcept {}

  // The tensor's granules leave once no other wanted tensor lies in them / come back.
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

  // Where the slow tier is used in place nothing has to be awaited, and these three are called.
  virtual bool in_place() const { return false; }
  virtual Arrival arrival(std::uintptr_t, std::uint64_t) const noexcept { return Arrival::in_time; }
  virtual void leave(std::uintptr_t, std::uint64_t) noexcept {}  // in slow memory what has not come
  virtual std::uint64_t fast_bytes(std::uintptr_t, std::uint64_t bytes) const noexcept {
    return bytes;
  }

  // Memory that dead tensors still hold serves the next ones, wherever those lie. The caller sees
  // to it that no tensor is born meanwhile.
  virtual void reuse_dead_blocks() noexcept = 0;

  // From moving to counting through page faults and back, contents and addresses unchanged; other
  // threads may use the arena all along. A negative errno: nothing has changed.
  virtual FaultLoop* loop() noexcept = 0;  // null: no faults can be had here
  virtual int start_counting() noexcept = 0;
  virtual int stop_counting() noexcept = 0;
  bool counting() const { return counting_; }
  // Faults of resident memory while counting go here; false: nobody counts that page. When this
  // returns, the former source is no longer called.
  using CountFault = bool (*)(void* source, const Fault&) noexcept;
  virtual void count_with(CountFault, void* source) noexcept = 0;

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
  std::atomic<bool> counting_ = false;
  std::atomic<std::uint64_t> clock_ = 1;
  std::atomic<bool> launching_ = false;
};

}  // namespace sentinel
