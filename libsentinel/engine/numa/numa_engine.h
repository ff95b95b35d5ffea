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
//
// The engine itself decides where tensors begin and what a demotion or promotion means for each of
// their granules. Its parts do the rest:
//   NodeArena     the addresses, and the node of their first touches
//   NodeGranules  a record of each granule, and the diagram of its states
//   NodeQueues    the granules that are to move or are moving
//   NodeRoom      the budget, and where room comes from
//   NodeCounting  the switch to counting through page faults and back
//   NodeMovers    the promoter and the demoter
#pragma once

#include <memory>
#include <mutex>

#include "engine/engine.h"
#include "engine/numa/granules.h"
#include "engine/numa/node_arena.h"
#include "engine/numa/node_counting.h"
#include "engine/numa/node_movers.h"
#include "engine/numa/node_options.h"
#include "engine/numa/node_queues.h"
#include "engine/numa/node_room.h"

namespace sentinel {

class NumaEngine final : public Engine, public InPlaceMemory {
 public:
  NumaEngine(const NumaEngineOptions&, std::unique_ptr<NodeCalls>);  // throws Error
  ~NumaEngine() override;
  NumaEngine(const NumaEngine&) = delete;
  NumaEngine& operator=(const NumaEngine&) = delete;

  void set_budget(std::uint64_t bytes) override;

  // In fast memory from the start where there is room; dead granules and demotions under way make
  // room. False: it lies in slow memory until it is promoted.
  bool on_allocate(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  bool on_free(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept override;
  void demote(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void promote(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  void await(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  InPlaceMemory* in_place() noexcept override { return this; }
  Arrival arrival(std::uintptr_t address, std::uint64_t bytes) const noexcept override;
  void leave(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  std::uint64_t fast_bytes(std::uintptr_t address, std::uint64_t bytes) const noexcept override;
  void reuse_dead_blocks() noexcept override;

  FaultLoop* loop() noexcept override { return switch_.loop(); }
  int start_counting() noexcept override;
  int stop_counting() noexcept override;
  bool can_bar() const noexcept override { return switch_.can_bar(); }
  int start_barring() noexcept override { return switch_.start_barring(); }
  void stop_barring() noexcept override;
  void count_with(CountFault count, void* source) noexcept override {
    switch_.count_with(count, source);
  }
  void counted_in_kernel() noexcept override;

  // Pages shared with a child answer EACCES and stay until the child has gone.
  void before_fork() noexcept override;
  void after_fork_in_parent() noexcept override;
  void after_fork_in_child() noexcept override;

  EngineCounters counters() const override;

 private:
  using Guard = NodeQueues::Guard;

  // The caller holds the lock.
  void born_fast(Run) noexcept;
  void unwant(GranuleIndex) noexcept;

  // Each part knows only those before it; the threads of the last two end first.
  const std::unique_ptr<NodeCalls> calls_;
  const NodeArena addresses_;
  mutable std::mutex lock_;  // guards all below, as far as the parts do not say otherwise
  NodeGranules granules_;
  NodeQueues queues_;
  NodeRoom room_;
  NodeCounting switch_;
  NodeMovers movers_;
};

}  // namespace sentinel
