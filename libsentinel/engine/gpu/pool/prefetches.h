// Fetches ahead of need: blocks that a plan promotes, or a pager asks for, come as soon as there is
// room, in the order of the queue. Demand goes first: nothing is fetched here while a thread waits.
//
// The engine's lock guards it. fetch() may let that go.
#pragma once

#include "engine/gpu/pool/arrivals.h"

namespace sentinel::gpu::pool {

class Prefetches {
 public:
  Prefetches(Monitor&, Blocks&, Places&, FetchQueue&, Departures&, Room&, Arrivals&);

  void ask_for(Index);  // fetched as soon as there is room
  void fetch(Guard&);   // of what is asked for, as much as there is room for
  void touched(Index);  // by the pager's kernel
  void came_near(Index index) { queue_.here(index); }  // it lies on the host now

 private:
  void take_commands();

  Monitor& monitor_;
  Blocks& blocks_;
  Places& places_;
  FetchQueue& queue_;
  Departures& departures_;
  Room& room_;
  Arrivals& arrivals_;
};

}  // namespace sentinel::gpu::pool
