// Memory of the devices beside the one that a session manages, as their drivers give it, in their
// primary contexts: it is used where it lies, and counted.
//
//            release                   all that the device was given until then is over
//   live ---------------------> leaving -----------------------------------------------> given back
//         the program's thread           its device's helper thread, all that leaves at once
//
// It comes from cuMemAlloc and goes with cuMemFree. The pools of cuMemAllocAsync would need no
// helper, but a framework names one stream when it frees, and a tensor may be in use on others; and
// no peer reaches such a pool by cuCtxEnablePeerAccess, by which frameworks copy between devices.
// Who finds a device full waits for what is leaving there, and nobody else waits.
//
// Thread-safe. One lock guards all; nobody waits for a device with it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/gpu/cuda_driver.h"

namespace sentinel::gpu {

class Unmanaged {
 public:
  // `open` is called for a device's first memory, and again after it threw. `kept`: why memory of
  // the device is not given back, from its helper thread, for each call that is refused. It is
  // tried again with what is released next.
  using Open = std::function<std::unique_ptr<Driver>(int device)>;
  using Kept = std::function<void(int device, const std::exception& why)>;
  Unmanaged(Open open, Kept kept) : open_(std::move(open)), kept_(std::move(kept)) {}
  ~Unmanaged();  // what was released is given back
  Unmanaged(const Unmanaged&) = delete;
  Unmanaged& operator=(const Unmanaged&) = delete;

  // Bytes: of tensors, and of what is not given back yet, or was refused, beside them.
  struct Figures {
    std::uint64_t live_bytes = 0, most_live_bytes = 0, held_bytes = 0, most_held_bytes = 0;
  };

  // Null: the device is full, as why_full() says. Throws Error, as do the others.
  void* allocate(int device, std::uint64_t bytes);
  std::string why_full(int device, std::uint64_t bytes);
  void release(int device, void* memory);
  Figures figures(int device, bool reset);  // the most is what is now, from then on

  // Waits, some seconds at most, until nothing is leaving: no helper is in a call
  // of its driver then.
  void settle() noexcept;
  void before_fork() { lock_.lock(); }
  void after_fork() { lock_.unlock(); }

 private:
  struct Memory {
    void* address;
    std::uint64_t bytes;
  };
  struct Device {
    std::unique_ptr<Driver> driver;
    Figures figures;
    std::unordered_map<void*, std::uint64_t> sizes;  // of what is alive
    std::vector<Memory> leaving;                     // which the helper has not begun with
    std::vector<Memory> refused;                     // by the driver, until now
    std::uint64_t on_their_way = 0;                  // that leave, with those that it has
    std::uint64_t times = 0;                         // that it has given back memory
    std::thread helper;
  };
  Device& open(int device);
  static std::uint64_t bytes_of(const std::vector<Memory>&);
  void helper(int device, Device&);
  std::vector<Memory> give_back(int device, Driver&, const std::vector<Memory>&) const;

  const Open open_;
  const Kept kept_;
  std::mutex lock_;  // guards all below, but what a driver does
  std::condition_variable work_, gone_;
  std::map<int, Device> devices_;  // that were ever asked for memory
  bool over_ = false;
};

}  // namespace sentinel::gpu
