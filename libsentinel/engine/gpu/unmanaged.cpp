// Allocates on other devices, and frees there once a helper has waited for their work.
#include "engine/gpu/unmanaged.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/quiet_thread.h"
#include "base/units.h"

namespace sentinel::gpu {

Unmanaged::~Unmanaged() {
  {
    const std::lock_guard guard(lock_);
    over_ = true;
    work_.notify_all();
  }
  for (auto& [device, here] : devices_)
    if (here.helper.joinable()) here.helper.join();
}

// With the lock. What was refused is tried again by the next call.
Unmanaged::Device& Unmanaged::open(int device) {
  Device& here = devices_[device];
  if (!here.driver) here.driver = open_(device);
  if (!here.helper.joinable())
    here.helper = quiet_thread([this, device, &here] { helper(device, here); });
  return here;
}

void* Unmanaged::allocate(int device, std::uint64_t bytes) {
  std::unique_lock guard(lock_);
  Device& here = open(device);
  std::optional<std::uintptr_t> address;
  while (true) {
    const auto times = here.times;
    guard.unlock();
    address = here.driver->allocate(bytes);
    guard.lock();
    if (address) break;
    if (here.times == times && here.on_their_way == 0) return nullptr;
    gone_.wait(guard, [&] { return here.times != times; });
  }
  auto* memory = reinterpret_cast<void*>(*address);
  here.sizes.emplace(memory, bytes);
  auto& [live, most_live, held, most_held] = here.figures;
  most_live = std::max(most_live, live += bytes);
  most_held = std::max(most_held, held += bytes);
  return memory;
}

std::string Unmanaged::why_full(int device, std::uint64_t bytes) {
  const std::lock_guard guard(lock_);
  const Device& here = devices_.at(device);
  return fmt::format("gpu{} has no room for {}: {} of tensors are alive there, {} are free", device,
                     print_bytes(bytes), print_bytes(here.figures.live_bytes),
                     print_bytes(here.driver->free_bytes()));
}

void Unmanaged::release(int device, void* memory) {
  const std::lock_guard guard(lock_);
  const auto at = devices_.find(device);
  if (at == devices_.end() || !at->second.sizes.contains(memory))
    throw Error(fmt::format("gpu{}: what was freed is no live tensor", device));
  Device& here = at->second;
  const auto bytes = here.sizes.at(memory);
  here.leaving.push_back({memory, bytes});
  here.sizes.erase(memory);
  here.figures.live_bytes -= bytes;
  ++here.on_their_way;
  work_.notify_all();
}

Unmanaged::Figures Unmanaged::figures(int device, bool reset) {
  const std::lock_guard guard(lock_);
  const auto at = devices_.find(device);
  if (at == devices_.end()) return {};
  const Figures figures = at->second.figures;
  if (reset)
    at->second.figures = {figures.live_bytes, figures.live_bytes, figures.held_bytes,
                          figures.held_bytes};
  return figures;
}

void Unmanaged::settle() noexcept {
  constexpr auto kPatience = std::chrono::seconds(10);
  std::unique_lock guard(lock_);
  gone_.wait_for(guard, kPatience, [this] {
    return std::ranges::all_of(devices_,
                               [](const auto& at) { return at.second.on_their_way == 0; });
  });
}

void Unmanaged::helper(int device, Device& here) {
  std::unique_lock guard(lock_);
  while (true) {
    work_.wait(guard, [&] { return over_ || !here.leaving.empty(); });
    if (here.leaving.empty()) return;
    auto batch = std::exchange(here.leaving, {});
    const auto fresh = batch.size();
    batch.insert(batch.end(), here.refused.begin(), here.refused.end());
    guard.unlock();
    auto refused = give_back(device, *here.driver, batch);
    guard.lock();
    here.figures.held_bytes -= bytes_of(batch) - bytes_of(refused);
    here.refused = std::move(refused);
    here.on_their_way -= fresh;
    ++here.times;
    gone_.notify_all();
  }
}

// What is refused.
std::vector<Unmanaged::Memory> Unmanaged::give_back(int device, Driver& driver,
                                                    const std::vector<Memory>& batch) const {
  std::vector<Memory> refused = batch;
  try {
    driver.synchronize_all();
  } catch (const std::exception& why) {
    kept_(device, why);
    return refused;
  }
  std::erase_if(refused, [&](const Memory& memory) {
    try {
      driver.free(reinterpret_cast<std::uintptr_t>(memory.address));
      return true;
    } catch (const std::exception& why) {
      kept_(device, why);
      return false;
    }
  });
  return refused;
}

std::uint64_t Unmanaged::bytes_of(const std::vector<Memory>& all) {
  std::uint64_t sum = 0;
  for (const Memory& memory : all) sum += memory.bytes;
  return sum;
}

}  // namespace sentinel::gpu
