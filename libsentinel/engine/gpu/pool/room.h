// Room for blocks that come: chunks that are free, those that may be made, those of the dead, and
// those that others are made to give up. It chooses who has to leave, and maps nothing.
//
// The engine's lock guards it. Each function that is given a Guard may let that go.
#pragma once

#include <cstdint>

#include "engine/gpu/pool/departures.h"

namespace sentinel::gpu::pool {

class Room {
 public:
  Room(Driver&, Monitor&, Streams&, Blocks&, Chunks&, Places&, Departures&, KeepAll&);

  // Room for so many granules at most, and one at least: `now` or not at all. Waits only while
  // chunks are on their way out, or for a place on the host for what has to go that way.
  bool find(Chunks::List&, std::uint64_t most, bool now, Guard&);
  // The lock may be released before it is chosen. False: nothing can.
  bool evict_one(Together&, Guard&);
  void make_ahead(Guard&);  // as a pager has it
  bool wanted() const { return waiting_ > 0; }

 private:
  bool reuse_dead(std::uint64_t most, bool now, Guard&);
  HostStore::Place* find_place(Guard&);

  Driver& driver_;
  Monitor& monitor_;
  Streams& streams_;
  Blocks& blocks_;
  Chunks& chunks_;
  Places& places_;
  Departures& departures_;
  KeepAll& keep_all_;
  std::uint64_t waiting_ = 0;  // chunks that threads are in want of
};

}  // namespace sentinel::gpu::pool
