// Demand of the op that runs, or is about to be launched: the calling thread brings its blocks at
// once, and waits where it has to. It fetches nothing ahead of need.
//
// The engine's lock guards it. Each function that is given a Guard may let that go.
#pragma once

#include <cstdint>

#include "engine/gpu/pool/arrivals.h"

namespace sentinel::gpu::pool {

class DemandFetches {
 public:
  DemandFetches(Monitor&, Streams&, Blocks&, Chunks&, Places&, Departures&, Unwanted&, Room&,
                Arrivals&);

  // For a tensor that begins in so many granules: how many of the first of them have memory now. 0:
  // there is none for the first.
  Index make_resident(Index first, Index most, Guard&);
  void begin(Index);  // a tensor does, in what is resident
  void use(Index);    // by the op that runs
  void count_fault(Index);
  void ask_for_all(Index first, Index past, Guard&);
  // Of a range that ends before `past`. Throws Error where there is no room for it.
  void await(Index, Index past, Guard&);

  std::uint64_t faults() const { return faults_; }

 private:
  void bring_near(Index, Guard&);
  bool on_its_way(Index, Guard&);
  void begin_in(Index);

  Monitor& monitor_;
  Streams& streams_;
  Blocks& blocks_;
  Chunks& chunks_;
  Places& places_;
  Departures& departures_;
  Unwanted& unwanted_;
  Room& room_;
  Arrivals& arrivals_;
  std::uint64_t faults_ = 0;  // awaited, and absent
};

}  // namespace sentinel::gpu::pool
