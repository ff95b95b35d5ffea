// Places whose contents rest in the host's memory, in the order in which they go down into the
// file: first those that belong below, then those that have rested longest. It moves no byte.
//
// The engine's lock guards it.
#pragma once

#include <cstddef>
#include <list>

#include "engine/gpu/store/place.h"

namespace sentinel::gpu {

class RestOrder {
 public:
  void enter(HostPlace*);
  void leave(HostPlace*);
  void sink(HostPlace*);   // it belongs below from now on
  void spare(HostPlace*);  // it belongs below no more, and goes down last
  bool sinking() const { return sinking_ > 0; }
  // The next to go down; null: none. `any`: memory is short, else only places that belong below go.
  // `urgent`: somebody waits, and places that came up for a plan go, too.
  HostPlace* next(bool any, bool urgent) const;

 private:
  std::list<HostPlace*> places_;  // what goes down first, first
  std::size_t sinking_ = 0;       // of them: those that belong below
};

}  // namespace sentinel::gpu
