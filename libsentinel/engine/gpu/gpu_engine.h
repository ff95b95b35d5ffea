// The engine of a GPU's memory over the host's: tensors keep their addresses, while the physical
// memory behind these comes and goes in chunks of a granule (cuMemMap), within a budget. What
// leaves is copied to pinned memory of the host and back on streams of the engine's own; where that
// memory is limited, a file lies below it (host_store.h).
//
// A GPU has no guard: memory must be there when a kernel is launched. So on_allocate() and await()
// leave tensors resident, as far as the host can know: the stream that computes is made to wait for
// copies under way by events, the calling thread is not. It waits for a chunk, where the budget is
// used up and chunks are on their way out, for a place on the host for what has to leave, for what
// lies in the file (a stall), and, as a launch would in the driver, far ahead of the device.
//
//          on_allocate              demote             copied, and no kernel uses it
//   empty ----------> resident ------------> leaving --------------------------> absent
//     ^                 |  ^  ^                |                                   |
//     | its chunk is    |  |  +--- recalled ---+                                   |
//     +- taken, dead ---+  +------------------------- promote, await --------------+
//
// A tensor that somebody can make again leaves without a copy: its blocks are then `lost`, until
// they are filled again (lost_contents.h).
//
// With a device that reads and writes the file itself, what goes that way is `leaving` until it is
// written, and recalled only before that begins; what comes that way is `arriving`, has its chunk,
// and is resident once it is filled. The launching thread waits for both, where it has to: they are
// in no stream.
//
// Unmapping is not stream-ordered. A chunk is unmapped once the event behind its last use has
// happened, which a helper thread waits for: one for what is copied out, one for what died, since
// neither's events tell when the other's happen; a third, where copies in fill a queue. (The
// Sentinel paper's section VI has one stream for both ways, where here each has its own.)
//
// One lock guards all state, that of the parts (engine/gpu/pool) included. It is held while work is
// queued on streams, never while anybody waits for the device, nor in calls that take long: those
// that make memory, map, unmap and pin it (Monitor::outside). The granules that such a call is
// about are `coming` (resident next) or `going` (empty or absent next), and nobody else's until it
// returns.
//
// The engine itself takes the lock, and tells the parts what the session asks for.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "engine/engine.h"
#include "engine/gpu/cuda_driver.h"
#include "engine/gpu/lost_contents.h"
#include "engine/gpu/pool/helpers.h"
#include "engine/gpu/store/host_store.h"

namespace sentinel::gpu {

struct PoolOptions {
  std::uint64_t arena_bytes = 0;  // addresses, rounded up to granules
  std::uint64_t granule_bytes = 2u << 20;
  // Left free on the device for what the program's libraries ask of it themselves (code, handles),
  // which would fail where nothing is. An op that cannot do without takes of it all the same.
  std::uint64_t spare_bytes = 0;
  HostOptions host = {};
  // Commands that a stream of the engine's own may have in its queue, before a helper thread has to
  // wait for the oldest. Four times as many have to fit into a device's: it holds some 1,024.
  std::uint64_t queued = 256;
};

class GpuEngine final : public Engine, public DeviceMemory, public DemandPaging {
 public:
  // The driver outlives the engine. Throws Error.
  GpuEngine(Driver&, const PoolOptions&);
  ~GpuEngine() override;
  GpuEngine(const GpuEngine&) = delete;
  GpuEngine& operator=(const GpuEngine&) = delete;

  // On which what this thread calls for from now on is computed. One thread at a time launches
  // work: between await() and the launch no other may ask for memory, unless the clock stands until
  // both have launched. Throws Error for the default stream that each thread has of its own.
  void compute_on(Stream stream) override;
  void finish() noexcept override;
  bool share(int device) override;
  void program_ends() noexcept override;
  DeviceMemory* device() noexcept override { return this; }
  DeviceContents* contents() noexcept override { return &lost_; }
  DemandPaging* paging() noexcept override { return this; }
  // What an op awaits and does not find is a fault, counted before anything of it is fetched.
  void page(std::unique_ptr<Pager>) override;
  void kernel(std::uint64_t hash) noexcept override;
  void pin(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void unpin(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  bool keep_all(bool) noexcept override;
  bool is_short() const noexcept override { return keep_all_.is_short(); }
  void hold_pool(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void let_pool_go(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void forget(Stream) override;
  void settle();  // waits until nothing is on its way out

  void set_budget(std::uint64_t bytes) override;

  // False: there is no room, since the op that runs uses all of the budget, or the device is full.
  // The tensor has not begun then.
  bool on_allocate(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  bool on_free(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept override;
  void touch(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void demote(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void sink(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void promote(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  // Ends the process where there is no room for what the op uses: session plans see to it that
  // there is.
  void await(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void overwrite(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  std::uint64_t discard(std::uintptr_t address, std::uint64_t bytes, Ends) noexcept override;
  void refill(std::uintptr_t address, std::uint64_t bytes, const void* source) noexcept override;
  void remake_with(Remaker* remaker) override { lost_.remake_with(remaker); }

  // A GPU's memory is not a child's.
  void before_fork() noexcept override;
  void after_fork_in_parent() noexcept override;
  void after_fork_in_child() noexcept override;

  EngineCounters counters() const override;

 private:
  using Guard = pool::Guard;
  using Index = pool::Index;
  using State = pool::State;
  using Together = pool::Together;

  template <class F>
  void for_blocks(std::uintptr_t address, std::uint64_t bytes, F&& f);
  std::pair<Index, Index> blocks_of(std::uintptr_t address, std::uint64_t bytes) const;
  HostStore::Events store_events();
  std::thread start(void (pool::Helpers::*work)());
  void no_calls(Guard&);  // waits until there are none
  void keep_pace(Guard&);
  void send_away(std::uintptr_t address, std::uint64_t bytes, bool sinks) noexcept;
  void change_pools(std::uintptr_t address, std::uint64_t bytes, int change) noexcept;

  // The parts, each with those before it. Marks in blocks and queues give their events back to the
  // streams, which outlive them therefore.
  Driver& driver_;
  pool::Monitor monitor_;
  pool::Streams streams_;
  pool::KeepAll keep_all_;
  pool::Blocks blocks_;
  pool::Chunks chunks_;
  pool::Places places_;
  pool::FetchQueue queue_;
  pool::Departures departures_;
  pool::Unwanted unwanted_;
  pool::Room room_;
  pool::Arrivals arrivals_;
  pool::Prefetches prefetches_;
  pool::DemandFetches demand_;
  LostContents lost_;
  pool::Helpers helpers_;
  bool in_child_ = false;
  std::thread thread_, end_thread_, queue_thread_;
};

}  // namespace sentinel::gpu
