#include "execute/gpu/unmanaged.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace sentinel::gpu {

void* Unmanaged::allocate(int device, std::uint64_t bytes) {
  std::unique_lock guard(lock_);
  auto at = devices_.find(device);
  if (at == devices_.end()) at = devices_.emplace(device, Device{.driver = open_(device)}).first;
  Device& here = at->second;
  guard.unlock();
  const auto address = here.driver->allocate(bytes);
  if (!address) return nullptr;
  auto* memory = reinterpret_cast<void*>(*address);
  guard.lock();
  note(here, memory, bytes);
  return memory;
}

std::string Unmanaged::why_full(int device, std::uint64_t bytes) {
  const std::lock_guard guard(lock_);
  const Device& here = devices_.at(device);
  return fmt::format("gpu{} has no room for {}: {} of tensors are alive there, {} are free", device,
                     print_bytes(bytes), print_bytes(here.figures.live_bytes),
                     print_bytes(here.driver->free_bytes()));
}

// Another thread may be given the same address as soon as it is free.
void Unmanaged::release(int device, void* memory) {
  std::unique_lock guard(lock_);
  const auto at = devices_.find(device);
  if (at == devices_.end() || !at->second.sizes.contains(memory))
    throw Error(fmt::format("gpu{}: what was freed is no live tensor", device));
  Device& here = at->second;
  const auto bytes = here.sizes.extract(memory).mapped();
  here.figures.live_bytes -= bytes;
  guard.unlock();
  try {
    here.driver->free(reinterpret_cast<std::uintptr_t>(memory));
  } catch (...) {
    guard.lock();
    note(here, memory, bytes);
    throw;
  }
}

void Unmanaged::note(Device& device, void* memory, std::uint64_t bytes) {
  device.sizes.emplace(memory, bytes);
  auto& [live, most] = device.figures;
  live += bytes;
  most = std::max(most, live);
}

Unmanaged::Figures Unmanaged::figures(int device, bool reset) {
  const std::lock_guard guard(lock_);
  const auto at = devices_.find(device);
  if (at == devices_.end()) return {};
  const Figures figures = at->second.figures;
  if (reset) at->second.figures.most_live_bytes = figures.live_bytes;
  return figures;
}

}  // namespace sentinel::gpu
