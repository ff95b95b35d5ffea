// Tensors' bytes as the host sees and sets them: in the processor's memory where they lie, on a
// device by copies behind all that the calling thread has launched, for which it waits.
//
// Thread-safe. The bytes are there, and nobody frees them meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "runtime/replay/recipe.h"

namespace sentinel {

class HostView {
 public:
  // Of the engine's memory. Without `device` it is the processor's.
  explicit HostView(DeviceContents* device) : device_(device) {}

  ContentHash hash(std::uintptr_t address, std::size_t size) const;
  void fill(std::uintptr_t address, std::size_t size, unsigned char with) const;
  void flip_a_bit(std::uintptr_t address, std::size_t size) const;  // in its middle, for tests

 private:
  std::vector<unsigned char> bytes(std::uintptr_t address, std::size_t size) const;

  DeviceContents* const device_;
};

}  // namespace sentinel
