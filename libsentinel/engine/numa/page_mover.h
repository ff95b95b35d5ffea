// The executor of NUMA tiers: moves granules to a node with move_pages, many in one call, and tries
// again what failed, by cause. Nothing is ever lost: a page that does not move stays where it is,
// with its contents.
//
// One for each migration thread; only counters() may be called from another.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/host/node_calls.h"

namespace sentinel {

struct Moved {
  std::uint64_t bytes = 0;  // that are in the node now
  std::uint64_t left = 0;   // bytes that stayed where they were
};

class PageMover {
 public:
  PageMover(NodeCalls&, std::uint64_t granule_bytes);

  // `granules`: the addresses of their beginnings; `out` tells of each. Bytes that are in no node,
  // because nobody has touched them, count for neither.
  void move(std::span<const std::uintptr_t> granules, int node, std::span<Moved> out) noexcept;

  void add_to(EngineCounters&) const noexcept;  // causes and pages left

 private:
  struct Page {
    std::uintptr_t address = 0;
    std::uint64_t bytes = 0;
    std::size_t granule = 0;  // index in `out`
    int status = 0;
    bool settled = false;
  };

  void move_pages(int node) noexcept;
  void attempt(int node) noexcept;
  void settle(Page&, int node, int status) noexcept;
  bool huge(const Page&, int node) noexcept;
  void name_small_pages(std::size_t granules, int node) noexcept;

  NodeCalls& calls_;
  std::uint64_t granule_;
  std::vector<Page> pages_;
  std::vector<Page*> asked_;
  std::vector<void*> addresses_;
  std::vector<int> status_;
  std::array<std::atomic<std::uint64_t>, kMoveCauses.size()> causes_{};
  std::atomic<std::uint64_t> left_ = 0;
};

}  // namespace sentinel
