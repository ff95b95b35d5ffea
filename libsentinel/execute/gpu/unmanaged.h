// Memory of the devices beside the one that a session manages, as their drivers give it, in their
// primary contexts: it is used where it lies, and counted.
//
// It comes from cuMemAlloc and goes with cuMemFree, after all that the device was given. The pools
// of cuMemAllocAsync would not make whoever frees wait, but a framework names one stream when it
// frees, and a tensor may be in use on others; and no peer reaches such a pool by
// cuCtxEnablePeerAccess, by which frameworks copy between devices.
//
// Thread-safe. One lock guards all; nobody waits for a device with it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "execute/gpu/driver.h"

namespace sentinel::gpu {

class Unmanaged {
 public:
  // `open` is called for a device's first memory, and again after it threw.
  using Open = std::function<std::unique_ptr<Driver>(int device)>;
  explicit Unmanaged(Open open) : open_(std::move(open)) {}

  struct Figures {
    std::uint64_t live_bytes = 0, most_live_bytes = 0;
  };

  // Null: the device is full, as why_full() says. Throws Error, as do the others.
  void* allocate(int device, std::uint64_t bytes);
  std::string why_full(int device, std::uint64_t bytes);
  // What could not be given back is alive still.
  void release(int device, void* memory);
  Figures figures(int device, bool reset);  // the most alive is what is now, from then on

  void before_fork() { lock_.lock(); }
  void after_fork() { lock_.unlock(); }

 private:
  struct Device {
    std::unique_ptr<Driver> driver;
    Figures figures;
    std::unordered_map<void*, std::uint64_t> sizes;
  };
  void note(Device&, void* memory, std::uint64_t bytes);

  const Open open_;
  std::mutex lock_;                // guards all below, but what a driver does
  std::map<int, Device> devices_;  // that were ever asked for memory
};

}  // namespace sentinel::gpu
