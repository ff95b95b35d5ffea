// The promoter and the demoter of NUMA tiers, two threads. Each takes what is due, as much as one
// call moves, and holds no lock while it moves.
//
// They run from the constructor to the destructor, under the engine's lock but for the moves; it
// guards the two sums as well. They decide nothing: what is to move is queued, and a granule comes
// in only where there is room. No other thread may touch a granule while it arrives or leaves.
#pragma once

#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/numa/granules.h"
#include "engine/numa/node_queues.h"
#include "engine/numa/node_room.h"
#include "engine/numa/page_mover.h"

namespace sentinel {

class NodeMovers {
 public:
  NodeMovers(std::mutex& engine_lock, NodeCalls&, NodeGranules&, NodeQueues&, NodeRoom&);
  ~NodeMovers();
  NodeMovers(const NodeMovers&) = delete;
  NodeMovers& operator=(const NodeMovers&) = delete;

  void add_to(EngineCounters&) const noexcept;  // bytes moved, causes and pages left

 private:
  using Guard = NodeQueues::Guard;
  using Batch = std::vector<GranuleIndex>;

  void promoter() noexcept;
  void demoter() noexcept;
  void fill_promotions(Batch&) noexcept;
  void fill_demotions(Batch&) noexcept;
  void carry(const Batch&, bool in, Guard&) noexcept;
  void arrived(GranuleIndex, const Moved&) noexcept;
  void left(GranuleIndex, const Moved&) noexcept;
  std::size_t batch_granules() const noexcept;

  std::mutex& lock_;
  const NodeArena& arena_;
  NodeGranules& granules_;
  NodeQueues& queues_;
  NodeRoom& room_;
  PageMover in_, out_;
  std::uint64_t promoted_bytes_ = 0, demoted_bytes_ = 0;
  std::thread promoter_, demoter_;
};

}  // namespace sentinel
