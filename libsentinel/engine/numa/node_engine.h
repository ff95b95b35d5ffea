// The engine of a slow tier that is memory too: another NUMA node. What lies there is used in
// place, only slower, so nothing is guarded and nothing is ever absent; moving is move_pages.
//
// The invariant: a granule that is counted may hold pages in the fast node and its first touch goes
// there; one that is not counted holds none, and its first touch goes to the slow node. Counted
// granules never exceed the budget. (Pages that the kernel refuses to move are the exception; they
// stay counted where they are.)
//
// Until the first set_budget() nothing is in fast memory. Threads: the promoter and the demoter;
// any number of training threads. One lock; it is not held while pages move.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/kept_memory.h"
#include "capture/reserved.h"
#include "engine/engine.h"
#include "engine/frames/backing.h"
#include "engine/host/topology.h"
#include "engine/numa/granules.h"
#include "engine/numa/page_mover.h"

namespace sentinel {

struct NodeEngineOptions {
  NodeTiers nodes;
  std::uint64_t granule_bytes = 2u << 20;  // or 4096
  std::uint64_t arena_bytes = 0;           // addresses, a multiple of 2 MiB
};

class NodeEngine final : public Engine {
 public:
  NodeEngine(const NodeEngineOptions&, std::unique_ptr<NodeCalls>);  // throws Error
  ~NodeEngine() override;
  NodeEngine(const NodeEngine&) = delete;
  NodeEngine& operator=(const NodeEngine&) = delete;

  void set_budget(std::uint64_t bytes) override;

  // In fast memory from the start where there is room; dead granules and demotions under way make
  // room. False: it lies in slow memory until it is promoted.
  bool occupy(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  bool vacate(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept override;
  void demote(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void promote(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void await(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  bool in_place() const override { return true; }
  Arrival arrival(std::uintptr_t address, std::uint64_t bytes) const noexcept override;
  void leave(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  std::uint64_t fast_bytes(std::uintptr_t address, std::uint64_t bytes) const noexcept override;
  void reuse_dead_blocks() noexcept override;

  FaultLoop* loop() noexcept override { return loop_.get(); }
  int start_counting() noexcept override;
  int stop_counting() noexcept override;
  void count_with(CountFault, void* source) noexcept override;
  void counted_in_kernel() noexcept override;

  // Pages shared with a child answer EACCES and stay until the child has gone.
  void before_fork() noexcept override;
  void after_fork_in_parent() noexcept override;
  void after_fork_in_child() noexcept override;

  EngineCounters counters() const override;

 private:
  using Guard = std::unique_lock<std::mutex>;
  using Batch = std::vector<GranuleIndex>;

  // node_engine.cpp; the caller holds the lock. bind() alone is called without it too, for granules
  // that are arriving or leaving: they are their mover's until they have come or gone.
  Run run_of(std::uintptr_t address, std::uint64_t bytes) const noexcept;
  bool room_for(std::uint64_t granules) noexcept;
  bool make_room(Run, Guard&) noexcept;
  void room_changed() noexcept;
  void drop_dead(std::uint64_t most) noexcept;
  void drop(Run) noexcept;
  void bind(Run, bool fast) noexcept;
  void born_fast(Run) noexcept;
  void list_dead(GranuleIndex) noexcept;
  void list_refused(GranuleIndex) noexcept;
  void retry_refused() noexcept;
  void unwant(GranuleIndex) noexcept;
  void queue_in(GranuleIndex) noexcept;
  void queue_out(GranuleIndex) noexcept;
  void recall(Granule&) noexcept;
  bool coming(const Granule&) const noexcept;
  bool hopeless() const noexcept { return roomless_ && queued_out_ + leaving_ == 0; }
  void wait_until_settled(Guard&) noexcept;
  void thaw() noexcept;
  std::uintptr_t address_of(GranuleIndex index) const { return arena_ + index * granule_; }
  void* pointer(GranuleIndex index) const { return reinterpret_cast<void*>(address_of(index)); }

  // f(part) for each longest part of the run whose granules all are as asked for.
  template <class Is, class F>
  void for_runs(Run run, Is&& is, F&& f) noexcept {
    const auto end = run.first + run.count;
    for (auto i = run.first; i < end; ++i) {
      const auto first = i;
      while (i < end && is(granules_[i])) ++i;
      if (i > first) f(Run{first, i - first});
    }
  }

  // node_movers.cpp
  void promoter() noexcept;
  void demoter() noexcept;
  void fill_promotions(Batch&) noexcept;
  void fill_demotions(Batch&) noexcept;
  void carry(const Batch&, bool in, Guard&) noexcept;
  void arrived(GranuleIndex, const Moved&) noexcept;
  void left(GranuleIndex, const Moved&) noexcept;
  std::size_t batch_granules() const noexcept;

  // node_counting.cpp
  enum class Phase { off, moving_out, shared, sealing, moving_back };
  std::uintptr_t map_private() const;
  static void on_missing(void* self, const Fault&) noexcept;
  static void on_minor(void* self, const Fault&) noexcept;
  int to_shared() noexcept;
  int to_private() noexcept;
  int set_aside(std::uintptr_t aside) noexcept;
  void put_back(std::uintptr_t aside, GranuleIndex end) noexcept;
  int put_shared(std::uintptr_t aside) noexcept;
  template <class F>  // f(run) for the longest runs of one policy below `end`
  void for_policies(GranuleIndex end, F&& f) noexcept {
    for (GranuleIndex i = 0, last = 0; i < end; i = last) {
      for (last = i + 1; last < end && granules_[last].binds_fast == granules_[i].binds_fast;)
        ++last;
      f(Run{i, last - i});
    }
  }
  bool lives(BlockIndex) const noexcept;
  bool copy_back(BlockIndex) noexcept;

  const NodeTiers nodes_;
  const std::unique_ptr<NodeCalls> calls_;
  std::uint64_t mapped_bytes_;  // the arena and one page that is never handed out
  Reserved<Granule> granules_;
  PageMover mover_in_, mover_out_;

  mutable std::mutex lock_;                       // guards all below
  std::uint64_t budget_ = 0, held_ = 0;           // granules
  GranuleIndex top_ = 0;                          // none from here on has ever been occupied
  Runs promotions_, demotions_, dead_, refused_;  // may name granules that have changed meanwhile
  std::uint64_t retried_ = 0;                     // clock_ when those refused were asked again
  std::uint64_t queued_out_ = 0, arriving_ = 0, leaving_ = 0;  // granules
  bool roomless_ = false;                                      // the promoter waits for room
  bool frozen_ = false, stop_ = false;
  EngineCounters counters_;
  std::condition_variable promoter_work_, demoter_work_, settled_;
  std::thread promoter_, demoter_;

  std::unique_ptr<FaultLoop> loop_;
  std::unique_ptr<SharedFrames> shared_;
  std::uint64_t pinned_ = pinned_bytes();  // before there was a tensor
  std::atomic<Phase> phase_ = Phase::off;
  std::atomic<CountFault> count_fault_ = nullptr;
  std::atomic<void*> count_source_ = nullptr;
  std::mutex copies_lock_;    // copied_; taken by the fault thread too
  std::vector<bool> copied_;  // blocks, on the way back from counting
};

}  // namespace sentinel
