// SPDX-License-Identifier: Apache-2.0
// Policies that are driven by page faults: the third kind of policy (sentinel/policy.h).
//
// The framework's allocator takes its memory from one unified address space, managed in *blocks* of
// 2 MiB (512 pages). An op is a *kernel* here: it names blocks, not tensors, and faults on the
// blocks that are not in fast memory. A pager is what the driver asks what to evict and what to
// fetch ahead; it sees kernels by a hash of their name and arguments, faults, arrivals, and nothing
// of what comes.
//
// Who calls what: a simulation (sim/paging.h), or the engine of a GPU's memory under its lock,
// calls a pager in the order of execution, never concurrently. Its methods answer at once and throw
// nothing. The engine knows what a kernel needs, not what faults: there a fault is what an op
// awaits and does not find, what an op makes is not named, and a victim may be refused, in which
// case it arrives once more.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "sentinel/policy.h"

namespace sentinel {

using BlockId = Id<struct BlockTag>;  // address / kBlockBytes; live, from the arena's begin

constexpr std::uint64_t kBlockPages = 512, kPageBytes = 4096,
                        kBlockBytes = kBlockPages * kPageBytes;
constexpr std::size_t kPagerCommands = 64;  // of a pager, looked at before there is room for them
constexpr std::uint64_t kPagerFreeBlocks = 8;  // that room made ahead of need keeps free

// What a pager can ask the driver.
class BlockView {
 public:
  virtual ~BlockView() = default;
  virtual bool present(BlockId) const = 0;  // in fast memory with all of its pages, or on its way
};

class Pager {
 public:
  virtual ~Pager() = default;

  // Execution. `hash` is equal for kernels of the same name and arguments, addresses included.
  virtual void kernel_start(std::uint64_t hash) = 0;
  virtual void kernel_end() = 0;
  virtual void touched(BlockId) = 0;  // the running kernel names it
  // Of the blocks touched, those that are absent and not expected(), in order.
  virtual void faulted(BlockId) {}
  // Whether the block is predicted for the running kernel, so that a command to fetch it exists.
  virtual bool expected(BlockId) const { return false; }

  // Residency, as it changes.
  virtual void arrived(BlockId) = 0;
  virtual void left(BlockId) = 0;  // or may not be a victim; also said of what is not present

  // What to fetch next, in order; asked while no fault waits. Each command is given once, and again
  // after the next fault, which empties the driver's queue of commands.
  virtual std::optional<BlockId> prefetch(const BlockView&) { return std::nullopt; }

  // What to evict; it is evicted. `pressing`: a fault waits for room, or the driver makes room on
  // the way; otherwise room is made ahead of need. Nothing where nothing may go: a pressing request
  // is refused only when no block is in fast memory.
  virtual std::optional<BlockId> victim(bool pressing) = 0;

  virtual bool pre_evicts() const { return false; }  // room is made ahead of need
  // A victim in which nothing lies that the framework's allocator has handed out is dropped instead
  // of written.
  virtual bool invalidates() const { return false; }

  virtual std::uint64_t table_bytes() const { return 0; }
  // Faults so far on blocks of kernels whose blocks do not fit their table.
  virtual std::uint64_t conflict_misses() const { return 0; }
};

// How memory is managed below the framework.
enum class Mechanism : std::uint8_t {
  unified_memory,  // blocks migrate by faults; the policy's pager decides
  hardware_cache   // fast memory is a direct-mapped cache of the slow tier; nothing to decide
};

class PagedPolicy : public Policy {
 public:
  virtual Mechanism mechanism() const { return Mechanism::unified_memory; }
  // Null for a hardware cache. Throws Error on features the policy does not have.
  virtual std::unique_ptr<Pager> prepare(const Machine&, const PlanOptions&) = 0;
};

}  // namespace sentinel
