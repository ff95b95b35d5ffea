// GPUs beside the one whose memory is managed, for instance in a program that copies to a second:
// their tensors stay there, outside the budget, and their memory is given and taken here.
// Thread-safe, by a lock of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "engine/gpu/cuda_driver.h"
#include "engine/gpu/unmanaged.h"
#include "options/options.h"
#include "runtime/limit/voice.h"

namespace sentinel {

struct MemoryFigures {  // bytes
  std::uint64_t live_bytes, most_live_bytes, held_bytes, most_held_bytes, budget_bytes;
};

class OtherDevices {
 public:
  // All outlive it.
  OtherDevices(const SessionOptions&, Engine&, const Voice&);

  // Null: why_full() says it. Throws Error, also in a forked child.
  void* allocate(int device, std::size_t bytes);
  std::string why_full(int device, std::size_t bytes) { return memory_.why_full(device, bytes); }
  void release(int device, void* address) noexcept;
  MemoryFigures figures(int device, bool reset = false);  // reset: the most alive is counted anew

  void settle() { memory_.settle(); }  // waits until nothing is on its way out
  void before_fork() { memory_.before_fork(); }
  void after_fork_in_parent() { memory_.after_fork(); }
  void after_fork_in_child() {
    memory_.after_fork();
    in_child_ = true;
  }

 private:
  std::unique_ptr<gpu::Driver> open(int device);
  void tell_of_kept(int device, const std::exception& why);

  const SessionOptions& options_;
  Engine& engine_;
  const Voice& voice_;
  std::atomic<bool> told_of_kept_ = false;  // memory that a driver does not take back
  bool in_child_ = false;
  gpu::Unmanaged memory_;
};

}  // namespace sentinel
