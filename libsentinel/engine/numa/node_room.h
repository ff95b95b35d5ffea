// Fast memory within its budget: how much of it is held, and where more room comes from when it is
// lacking. Granules that lie dead there are dropped, others have to leave.
//
// Invariant: `held_` granules are in a place that is counted (granules.h). Whoever moves a granule
// between a counted place and another one says so with hold() or release(). It never exceeds the
// budget but by pages that the kernel refuses to move, and while a smaller budget comes into force.
//
// The engine's lock guards all of it; the waits give it back meanwhile. It must not move a page: it
// drops dead granules and queues those that should leave.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/numa/granules.h"
#include "engine/numa/node_queues.h"
#include "engine/numa/runs.h"

namespace sentinel {

class NodeRoom {
 public:
  using Guard = NodeQueues::Guard;
  static constexpr std::uint64_t kUnlimited = ~0ull >> 1;

  // `clock`: the number of the op that runs.
  NodeRoom(NodeGranules&, NodeQueues&, const std::atomic<std::uint64_t>& clock);

  // In granules. Returns once it holds, as far as it can.
  void set_budget(std::uint64_t granules, Guard&) noexcept;
  bool none() const { return budget_ == 0; }
  std::uint64_t held() const { return held_; }
  std::uint64_t peak() const { return peak_; }  // since the budget was set

  void hold(std::uint64_t granules) noexcept;
  void release(std::uint64_t granules) noexcept { held_ -= granules; }

  // For a birth: room for all of the run, if need be by a wait for demotions.
  bool make_for(Run, Guard&) noexcept;
  // For the promoter, which looks for work: one granule more is held; or false, and room is lacking
  // from now on.
  bool admit() noexcept;
  // Room is not known to be lacking, or has come: the promoter finds out how much.
  void expect() noexcept { lacking_ = false; }
  void changed() noexcept;
  bool lacking() const { return lacking_; }  // the promoter waits for room
  // And nothing makes any.
  bool hopeless() const { return lacking_ && queues_.making_room() == 0; }

  // It is in fast memory, and may be dropped; or it should leave, and did not.
  void list_dead(GranuleIndex) noexcept;
  void list_refused(GranuleIndex) noexcept;

 private:
  bool has(std::uint64_t granules) noexcept;
  void drop_dead(std::uint64_t most) noexcept;
  void retry_refused() noexcept;

  NodeGranules& granules_;
  NodeQueues& queues_;
  const std::atomic<std::uint64_t>& clock_;
  std::uint64_t budget_ = 0, held_ = 0, peak_ = 0;  // granules
  Runs dead_, refused_;                             // may name granules that have changed meanwhile
  std::uint64_t retried_ = 0;                       // clock_ when those refused were asked again
  bool lacking_ = false;
};

}  // namespace sentinel
