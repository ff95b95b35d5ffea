// The part of a session that only a GPU needs: which op launches next, and which tensors may not
// leave. Without one (the engine guards its memory) all of it is free of effect.
//
// Guarded by the session's lock.
#pragma once

#include <cstdint>
#include <utility>

#include "alloc/address_table.h"
#include "engine/engine.h"

namespace sentinel {

class DeviceLane {
 public:
  explicit DeviceLane(Engine& engine) : engine_(engine), device_(engine.device()) {}

  // Of one thread's op.
  struct Op {
    bool unused = false;    // it has neither named nor made a tensor of the GPU's
    bool computes = false;  // it has: what it uses is protected
  };
  void begin(Op& op) {
    end(op);
    op.unused = device_ != nullptr;
  }
  // It names or makes a tensor of the GPU's.
  void use(Op& op) {
    if (std::exchange(op.unused, false)) first_use(op);
  }
  void end(Op& op) {
    op.unused = false;
    if (std::exchange(op.computes, false)) computed();
  }

  // Until an op names it, a tensor stays. What none ever does (a library's workspace) is used by
  // kernels all the same.
  void hold(LiveTensor&);
  void let_go(LiveTensor&);
  void pin(LiveTensor&);
  void freed(LiveTensor&);
  std::uint64_t pinned_bytes() const { return pinned_bytes_; }

 private:
  void first_use(Op&);
  void computed();

  Engine& engine_;
  DeviceMemory* const device_;   // or null
  std::uint32_t computing_ = 0;  // ops that use the GPU's tensors now
  std::uint64_t pinned_bytes_ = 0;
};

}  // namespace sentinel
