// One granule of the arena, as GpuEngine's parts know it: a record that they share. The
// diagram of its states is in engine/gpu/gpu_engine.h. The engine's lock guards it.
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "engine/gpu/store/host_store.h"

namespace sentinel::gpu::pool {

using Index = std::uint32_t;         // of a granule in the arena
using Mark = std::shared_ptr<void>;  // an event; whoever needs it holds it, under the lock
enum class State : std::uint8_t {
  empty,
  coming,
  resident,
  leaving,
  going,
  absent,
  arriving,
  lost  // it has no memory, and the only tensor in it is given up
};

struct ChunkBlock {
  State state = State::empty;
  bool queued = false;   // absent, going: a promotion waits for room, or for the file
  bool dead = false;     // resident: nothing lives in it
  bool late = false;     // among those that leave later (unwanted.h)
  bool sinks = false;    // while no plan wants it here: it belongs below the host's memory
  bool written = false;  // leaving: by the device into the file, or about to be
  bool ordered = false;  // dead: what computes there next is behind its last use anyway
  std::uint32_t live = 0, wanted = 0;
  std::uint32_t pools = 0;           // that are held, in which it lies
  std::uint32_t pins = 0;            // tensors in it that may not leave
  std::uint64_t used = 0;            // the op that used it last
  std::uint64_t ticket = 0;          // leaving: of its departure
  Chunk chunk = 0;                   // neither empty, absent nor lost
  HostStore::Place* lies = nullptr;  // not resident: where on the host or below
  // resident: its copy in, until what computes waits for it; dead: its last use, or nothing where
  // nobody has asked yet; leaving: its departure.
  Mark mark;
  std::list<Index>::iterator place;  // resident: among those by use, or the dead
  std::uintptr_t given_up = 0;       // the tensor in it whose contents are lost; 0: none

  // Something lives in it whose contents have to be kept.
  bool holds() const { return live > (given_up != 0 ? 1 : 0); }
};

}  // namespace sentinel::gpu::pool
