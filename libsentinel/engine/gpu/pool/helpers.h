// The work of the threads that are not the program's. Two helper threads wait for departures, and
// give their memory away; the third waits for copies in where their stream can take no more. The
// store's thread calls when bytes of a file have moved. The engine starts the threads, not this.
//
// The engine's lock guards it; the helpers' loops take that, and let it go while they wait.
#pragma once

#include "engine/gpu/pool/demand_fetches.h"
#include "engine/gpu/pool/prefetches.h"

namespace sentinel::gpu::pool {

class Helpers {
 public:
  Helpers(Monitor&, Places&, Departures&, Unwanted&, Arrivals&, Prefetches&);

  // A helper thread's: until the engine ends.
  void see_copies_out();
  void see_dead_out();
  void see_queue_drain();

  // The store's thread's.
  void has_room();
  void came_near(Index, Guard&);  // it lies in the host's memory now
  void written(Index, Guard&);    // by the device
  void filled(Index, Guard&);

 private:
  void look_again(Guard&);

  Monitor& monitor_;
  Places& places_;
  Departures& departures_;
  Unwanted& unwanted_;
  Arrivals& arrivals_;
  Prefetches& prefetches_;
};

}  // namespace sentinel::gpu::pool
