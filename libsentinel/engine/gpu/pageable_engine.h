// The engine of a recording whose accesses the patched kernel counts: the tensors of the device lie
// in ordinary memory of the process, which its kernels reach through the process's page tables or a
// copy of them that the kernel keeps (Pageable). Nothing moves and nothing has a budget.
//
// Not registered with userfaultfd, unlike a SsdEngine's arena: where a device asks for a page
// nobody may wait, so the kernel answers a registered page with SIGBUS, and NVIDIA's driver does
// not mirror such memory at all. Where tables are mirrored the memory is advised to stay on the
// host: what has moved to the device is found there without asking the kernel, and not counted.
#pragma once

#include <mutex>
#include <vector>

#include "engine/engine.h"
#include "engine/gpu/cuda_driver.h"
#include "engine/gpu/device/thread_streams.h"

namespace sentinel::gpu {

class PageableEngine final : public Engine, public DeviceMemory {
 public:
  // The driver outlives the engine, and is pageable(). Throws Error.
  PageableEngine(Driver&, std::uint64_t arena_bytes);
  ~PageableEngine() override;
  PageableEngine(const PageableEngine&) = delete;
  PageableEngine& operator=(const PageableEngine&) = delete;

  void compute_on(Stream stream) override { streams_.set(stream); }
  void forget(Stream stream) override { streams_.forget(stream); }
  void finish() noexcept override;
  DeviceMemory* device() noexcept override { return this; }

  void set_budget(std::uint64_t bytes) override;  // throws Error for any but 0
  bool on_allocate(std::uintptr_t address, std::uint64_t bytes) noexcept override;
  bool on_free(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept override;
  void demote(std::uintptr_t, std::uint64_t) noexcept override {}
  void promote(std::uintptr_t, std::uint64_t) noexcept override {}
  void await(std::uintptr_t, std::uint64_t) noexcept override {}

  // A GPU's memory is not a child's.
  void before_fork() noexcept override { lock_.lock(); }
  void after_fork_in_parent() noexcept override { lock_.unlock(); }
  void after_fork_in_child() noexcept override;

  EngineCounters counters() const override;

 private:
  void keep_on_host(std::uintptr_t address, std::uint64_t bytes);

  Driver& driver_;
  const bool mirrored_;
  ThreadStreams streams_;
  mutable std::mutex lock_;    // guards all below
  std::vector<bool> on_host_;  // granules that are advised to be
  std::vector<Event> events_;  // of no use now
  EngineCounters counters_;
  bool in_child_ = false;
};

}  // namespace sentinel::gpu
