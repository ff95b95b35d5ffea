// The node engine's records of the arena's granules, one each. Their memory comes with first use,
// so that addresses never used cost nothing.
//
//            born with room                            demote
//   slow -----------------------------> fast -----------------------> queued_out
//    ^  \ promote                        ^  <------ promoted again ------/   |
//    |   v              room             |                                   v
//    |  queued_in --------------> arriving                                leaving
//    +---<--- cancelled             nothing moved: slow                      |
//    +-----------------------------------<-----------------------------------+
//
// Counted against the budget are all but slow and queued_in. Guarded by the engine's lock; while
// a granule is arriving or leaving its mover alone changes the state.
#pragma once

#include <algorithm>
#include <cstdint>

#include "capture/reserved.h"
#include "engine/granule.h"
#include "engine/numa/node_arena.h"
#include "engine/numa/runs.h"

namespace sentinel {

enum class GranuleState : std::uint8_t { slow, queued_in, arriving, fast, queued_out, leaving };

struct Granule {
  std::uint16_t live = 0;    // tensors that overlap it
  std::uint16_t wanted = 0;  // of these, those that the plan wants in fast memory
  GranuleState place = GranuleState::slow;
  bool binds_fast = false;  // its first touch goes to the fast node
  bool touched = false;     // it may hold pages
  std::uint8_t listed = 0;  // kListedDead, kListedRefused
};

constexpr std::uint8_t kListedDead = 1;     // in the list of those that may be dropped
constexpr std::uint8_t kListedRefused = 2;  // in the list of those that should leave and did not

constexpr bool counted(GranuleState place) {
  return place != GranuleState::slow && place != GranuleState::queued_in;
}

// The records, and the policy and the pages of the granules in the kernel, which follow them.
//
// Invariant: `binds_fast` is the kernel's policy for the granule's range, and a granule that is not
// `touched` holds no page. Therefore only the functions of this class change these two fields.
// The engine's lock guards all of it. A granule that is arriving or leaving is its mover's until it
// has come or gone: bind() is called for such ones without the lock.
class NodeGranules {
 public:
  explicit NodeGranules(const NodeArena& arena) : arena_(arena), records_(arena.granules()) {}

  const NodeArena& arena() const { return arena_; }
  Granule& operator[](GranuleIndex index) noexcept { return records_[index]; }
  const Granule& operator[](GranuleIndex index) const noexcept { return records_[index]; }

  // None from here on has ever been occupied.
  GranuleIndex top() const { return top_; }
  std::uint64_t bytes_below_top() const { return top_ * arena_.granule(); }
  void occupied(Run run) { top_ = std::max(top_, run.first + run.count); }

  // Where the run's next first touch goes, and the end of its pages. The kernel is told of those
  // granules alone that are not so yet. Ranges of one policy are one range to the kernel as well.
  void bind(Run, bool fast) noexcept;
  void drop(Run) noexcept;
  void touched(Run) noexcept;  // from now on it may hold pages

  // Another mapping has taken the place of the arena's, and its first touches go to the slow node.
  void all_slow() noexcept;

  // Whether a block of 2 MiB holds anything that lives.
  bool lives(BlockIndex) const noexcept;

  // f(part) for each longest part of the run whose granules all are as asked for.
  template <class Is, class F>
  void for_runs(Run run, Is&& is, F&& f) const noexcept {
    const auto end = run.first + run.count;
    for (auto i = run.first; i < end; ++i) {
      const auto first = i;
      while (i < end && is(records_[i])) ++i;
      if (i > first) f(Run{first, i - first});
    }
  }

  // f(run) for the longest runs of one policy below `end`.
  template <class F>
  void for_policies(GranuleIndex end, F&& f) const noexcept {
    for (GranuleIndex i = 0, last = 0; i < end; i = last) {
      for (last = i + 1; last < end && records_[last].binds_fast == records_[i].binds_fast;) ++last;
      f(Run{i, last - i});
    }
  }

 private:
  const NodeArena& arena_;
  Reserved<Granule> records_;
  GranuleIndex top_ = 0;
};

}  // namespace sentinel
