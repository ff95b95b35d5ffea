// Blocks on their way out, from the moment at which nobody may use them any more until their memory
// is unmapped. Each can be recalled until then, or until the device writes it into the file. Others
// decide whether a block should leave.
//
// Unmapping is not stream-ordered, so each departure has a mark, and a helper thread waits for it:
// one for what is copied out and one for what died. The copies themselves begin once the stream out
// has room for them: the helper that waits for those before gives them to it.
//
// The engine's lock guards it. Each function that is given a Guard may let that go.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "engine/gpu/pool/blocks.h"
#include "engine/gpu/pool/chunks.h"
#include "engine/gpu/pool/fetch_queue.h"
#include "engine/gpu/pool/keep_all.h"
#include "engine/gpu/pool/monitor.h"
#include "engine/gpu/pool/places.h"
#include "engine/gpu/pool/streams.h"

namespace sentinel::gpu::pool {

// What a helper waits for. A departure that was recalled finds another ticket in its block, and
// takes care of the place that is still being written.
struct Departure {
  Index index;
  std::uint64_t ticket;
  Mark mark;
  HostStore::Place* place;  // null: what left was dead, or given up
};

// What ends or leaves while the lock is held: it shares events. see_off() ends that.
struct Together {
  Mark now;  // all that was launched until now
  std::vector<Departure> leaving;
};

class Departures {
 public:
  Departures(Driver&, Monitor&, Streams&, Blocks&, Chunks&, Places&, FetchQueue&, const KeepAll&);

  // `place`: for it, if it lives and is not given up.
  void leave(Index, HostStore::Place* place, Together&);
  void see_off(Together&);
  void die(Index, Together&);  // nothing lives in it any more
  void let_dead_go(std::uint64_t count);

  void recall(Index);
  bool take_back(Index);  // false: the device writes it already

  // A helper's: the next of those that are copied out, or died.
  bool any_copied() const { return !departures_.empty() || !uncopied_.empty(); }
  void copied_gone(Guard&);
  bool any_dead() const { return !ends_.empty(); }
  void dead_gone(Guard& guard) { gone(ends_, guard); }
  void written(Index, Guard&);     // by the device
  void not_filled(Index, Guard&);  // it has a chunk, and nothing comes into it

  std::uint64_t under_way() const { return under_way_; }
  std::uint64_t bytes() const { return demoted_bytes_; }
  void clear();

 private:
  void copy_out();
  void copy_together(std::vector<Departure>&);
  void gone(std::deque<Departure>& mine, Guard&);
  bool was_recalled(const Departure&);
  bool has_left(const Departure&);
  void let_go(Index first, Index count, Guard&);

  Driver& driver_;
  Monitor& monitor_;
  Streams& streams_;
  Blocks& blocks_;
  Chunks& chunks_;
  Places& places_;
  FetchQueue& queue_;
  const KeepAll& keep_all_;
  std::deque<Departure> departures_, ends_;      // of what lives, by copies, and of what died
  std::deque<std::vector<Departure>> uncopied_;  // together, for which the stream has no room yet
  std::uint64_t tickets_ = 0, under_way_ = 0;    // departures: ever; that have not ended
  std::uint64_t demoted_bytes_ = 0;
};

}  // namespace sentinel::gpu::pool
