// SPDX-License-Identifier: Apache-2.0
// The tier and executor seams. A tier is a place for frames; an executor moves frames
// between two tiers asynchronously with native error codes; a partial move is a normal result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sentinel {

// A slow tier that holds frames (fixed-size blocks) in numbered slots.
// Thread-safe. Errors are negative errno values.
class Tier {
 public:
  virtual ~Tier() = default;
  virtual std::uint64_t capacity() const = 0;  // bytes; 0 = unlimited
  virtual bool byte_addressable() const = 0;
  virtual std::int64_t reserve() noexcept = 0;  // a slot, or -ENOSPC …
  virtual void release(std::int64_t slot) noexcept = 0;
};

struct Transfer {
  bool write = false;  // fast to slow
  std::int64_t slot = 0;
  void* frame = nullptr;
  std::uint64_t cookie = 0;  // the caller's
  // The part of the slot that is transferred, of page-aligned ends; `bytes` 0: the whole. The frame
  // is as large as the part.
  std::uint64_t first = 0, bytes = 0;
  bool device = false;  // the frame is a GPU's memory: for executors that were given its files
  // Whoever submits it has taken the checksums of what is written, or compares what is read itself:
  // the slot may be another's when a read completes.
  bool unchecked = false;
};

struct Completion {
  std::uint64_t cookie = 0;
  int error = 0;  // 0 or a positive errno; a short transfer has been retried to its end or failed
};

// Used by one thread at a time, except wake().
class Executor {
 public:
  virtual ~Executor() = default;
  virtual std::size_t depth() const = 0;  // transfers that may be in flight
  // Starts them, with as few calls of the kernel as it can. 0 or a negative errno; what was started
  // before an error completes.
  virtual int submit_all(std::span<const Transfer>) noexcept = 0;
  int submit(const Transfer& transfer) noexcept { return submit_all({&transfer, 1}); }
  // Blocks until `least` transfers, of at least as many in flight, are complete or a wake()
  // arrives; returns how many were written to `out`: fewer after a wake(), or where a short one
  // goes on.
  virtual std::size_t wait_for(std::size_t least, std::span<Completion> out) noexcept = 0;
  std::size_t wait(std::span<Completion> out) noexcept { return wait_for(1, out); }
  virtual void wake() noexcept = 0;  // from any thread: makes wait_for() return
};

}  // namespace sentinel
