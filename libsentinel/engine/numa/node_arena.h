// The addresses of the engine's arena, counted in granules, and the kernel's calls on runs of them:
// where their first touches go, and that their pages are given back.
//
// Invariant: the range is mapped from the constructor to the destructor. The mapping may be
// exchanged for another one meanwhile (counting does so), the addresses stay.
//
// Nothing here changes after the constructor: any thread may call, no lock is needed. It knows no
// granule's state and must not touch what lies in a granule.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/host/topology.h"
#include "engine/host/node_calls.h"
#include "engine/numa/node_options.h"
#include "engine/numa/runs.h"

namespace sentinel {

class NodeArena {
 public:
  NodeArena(NodeCalls&, const NumaEngineOptions&);  // throws Error
  ~NodeArena();
  NodeArena(const NodeArena&) = delete;
  NodeArena& operator=(const NodeArena&) = delete;

  std::uintptr_t begin() const { return begin_; }
  std::uint64_t granule() const { return granule_; }
  std::uint64_t granules() const { return bytes_ / granule_; }
  std::uint64_t mapped_bytes() const { return mapped_bytes_; }
  int node(bool fast) const { return fast ? nodes_.fast : nodes_.slow; }

  Run run_of(std::uintptr_t address, std::uint64_t bytes) const noexcept;
  std::uintptr_t address_of(GranuleIndex index) const { return begin_ + index * granule_; }

  void bind(Run, bool fast) const noexcept;  // where the run's next first touch goes
  void drop(Run) const noexcept;             // gives the run's pages back
  void make_whole(Run) const noexcept;       // huge pages of small ones, where that is possible

  // A private mapping of the arena's size elsewhere, to be used in its place. Its first touches go
  // to the slow node. Throws Error.
  std::uintptr_t map() const;
  // The same for memory of that size that somebody else has mapped: 0 or a negative errno.
  int prefer_slow(void* memory) const noexcept;

 private:
  void* pointer(GranuleIndex index) const { return reinterpret_cast<void*>(address_of(index)); }

  NodeCalls& calls_;
  const NodeTiers nodes_;
  const std::uint64_t granule_, bytes_;
  const std::uint64_t mapped_bytes_;  // the arena and one page that is never handed out
  const std::uintptr_t begin_;
};

}  // namespace sentinel
