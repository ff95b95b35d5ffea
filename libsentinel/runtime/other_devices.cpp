// Allocates on devices that are not managed, and says so once for each.
#include "runtime/other_devices.h"

#include <fmt/format.h>

#include "base/failure.h"
#include "engine/gpu/checked.h"
#include "sentinel/error.h"

namespace sentinel {

OtherDevices::OtherDevices(const SessionOptions& options, Engine& engine, const Voice& voice)
    : options_(options),
      engine_(engine),
      voice_(voice),
      memory_([this](int device) { return open(device); },
              [this](int device, const auto& why) { tell_of_kept(device, why); }) {}

void* OtherDevices::allocate(int device, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (in_child_) throw Error("a forked child cannot use its parent's GPU");
  return memory_.allocate(device, bytes);
}

void OtherDevices::release(int device, void* address) noexcept {
  if (in_child_) return;
  try {
    memory_.release(device, address);
  } catch (const std::exception& error) {
    tell_of_kept(device, error);
  }
}

// On a device that is managed this would end training. Here it is told: the program hears of it
// from its framework, and may go on.
void OtherDevices::tell_of_kept(int device, const std::exception& why) {
  const auto* refused = dynamic_cast<const gpu::DriverError*>(&why);
  if (refused != nullptr && refused->status == gpu::kDeinitialized) return;
  if (!told_of_kept_.exchange(true))
    voice_.say(fmt::format("memory of gpu{} is not given back: {}", device, in_words(why)));
}

MemoryFigures OtherDevices::figures(int device, bool reset) {
  const auto [live, most_live, held, most_held] = memory_.figures(device, reset);
  return {.live_bytes = live,
          .most_live_bytes = most_live,
          .held_bytes = held,
          .most_held_bytes = most_held,
          .budget_bytes = 0};
}

std::unique_ptr<gpu::Driver> OtherDevices::open(int device) {
  auto driver = gpu::open_driver(device, options_.gpu.cuda);
  auto* managed = engine_.device();
  const bool reached = managed == nullptr || managed->share(device);
  const auto* apart =
      ". It cannot reach what lies on the other: copy by way of the processor, or "
      "take --gpu-memory managed";
  voice_.say(
      fmt::format("gpu{0} is not managed, gpu{1} is: tensors of gpu{0} stay there, outside "
                  "--fast{2}",
                  device, options_.gpu.device.value_or(-1), reached ? "" : apart));
  return driver;
}

}  // namespace sentinel
