// Granules at a tensor's ends that stay when it leaves, since another tensor begins in them soon
// (borders.h). The plan knows nothing of these frames: they are of those it keeps free.
// Guarded by the session's lock.
#pragma once

#include <cstdint>
#include <vector>

#include "alloc/address_table.h"
#include "engine/engine.h"
#include "runtime/step/borders.h"

namespace sentinel {

class KeptBorders {
 public:
  KeptBorders(Engine& engine, std::size_t most) : engine_(engine), most_(most) {}

  // Before a tensor leaves at the end of `op`. `sinks`: into the tier below the slow one.
  void keep(const LiveTensor&, const Borders&, std::uint32_t op, bool sinks);
  // Those whose tensors begin before that op: if one did, it holds them now.
  void let_go(std::uint32_t before);
  void let_all_go() { let_go(UINT32_MAX); }
  // The step is of another kind: with the next op all go, but not now, for this op may use them.
  void let_go_soon();

 private:
  struct Border {
    std::uintptr_t granule;
    std::uint32_t birth;  // the op at which a tensor begins in it
    bool sinks;           // what left belongs below the slow tier
  };

  Engine& engine_;
  std::size_t most_;
  std::vector<Border> kept_;
};

}  // namespace sentinel
