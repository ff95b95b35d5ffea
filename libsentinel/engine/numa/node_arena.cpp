// Maps the arena, binds runs to a node, drops their pages, and keeps huge pages whole.
#include "engine/numa/node_arena.h"

#include <sys/mman.h>

#include "alloc/ranges.h"
#include "engine/granule.h"
#include "sentinel/error.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace sentinel {

NodeArena::NodeArena(NodeCalls& calls, const NumaEngineOptions& options)
    : calls_(calls),
      nodes_(options.nodes),
      granule_(options.granule_bytes),
      bytes_(options.arena_bytes),
      mapped_bytes_(options.arena_bytes + kGranule),
      begin_(map()) {}

NodeArena::~NodeArena() { munmap(reinterpret_cast<void*>(begin_), mapped_bytes_); }

Run NodeArena::run_of(std::uintptr_t address, std::uint64_t bytes) const noexcept {
  const auto first = (address - begin_) / granule_;
  const auto last = (address - begin_ + (bytes == 0 ? 0 : bytes - 1)) / granule_;
  return {static_cast<GranuleIndex>(first), static_cast<GranuleIndex>(last - first + 1)};
}

void NodeArena::bind(Run run, bool fast) const noexcept {
  calls_.bind(pointer(run.first), run.count * granule_, node(fast));
}

void NodeArena::drop(Run run) const noexcept {
  calls_.drop(pointer(run.first), run.count * granule_);
}

// A huge page moves as one, its 512 parts one by one. Where the kernel cannot collapse them on
// request (before Linux 6.1) or has no huge page to spare, they stay small and move so.
void NodeArena::make_whole(Run run) const noexcept {
  for (auto i = run.first; i < run.first + run.count; ++i)
    madvise(pointer(i), granule_, MADV_COLLAPSE);
}

// Ranges whose policy comes to be the same are merged by the kernel only if they have had their
// first page in common: the last one, which is never handed out.
std::uintptr_t NodeArena::map() const {
  const auto begin = reserve_anonymous(mapped_bytes_, kGranule);
  auto* const memory = reinterpret_cast<void*>(begin);
  if (granule_ < kGranule) madvise(memory, mapped_bytes_, MADV_NOHUGEPAGE);
  if (const int code = prefer_slow(memory); code != 0) {
    munmap(memory, mapped_bytes_);
    throw Error("could not place the arena in a NUMA node", -code);
  }
  *reinterpret_cast<volatile char*>(begin + bytes_) = 1;
  return begin;
}

int NodeArena::prefer_slow(void* memory) const noexcept {
  return calls_.bind(memory, mapped_bytes_, nodes_.slow);
}

}  // namespace sentinel
