// The arena's addresses, and the guard that answers touches of them.
//
// Invariant: the range stays reserved at the same addresses as long as the object lives. It knows
// no block's state and touches none of the arena's memory.
//
// Addresses never change and need no lock. The guard is opened, ended or replaced where no other
// thread uses it: at the engine's two ends and in a forked child.
#pragma once

#include <cstdint>
#include <memory>

#include "capture/userfault/fault_loop.h"
#include "engine/granule.h"

namespace sentinel {

class GuardedArena {
 public:
  explicit GuardedArena(std::uint64_t bytes);  // a multiple of the granule; throws Error
  ~GuardedArena();
  GuardedArena(const GuardedArena&) = delete;
  GuardedArena& operator=(const GuardedArena&) = delete;

  std::uintptr_t begin() const { return begin_; }
  std::uint64_t bytes() const { return bytes_; }
  bool contains(std::uintptr_t address) const { return address - begin_ < bytes_; }
  std::uintptr_t address(BlockIndex index) const { return begin_ + index * kGranule; }
  BlockIndex index_of(std::uintptr_t address) const {
    return static_cast<BlockIndex>((address - begin_) / kGranule);
  }

  FaultLoop* loop() const noexcept { return loop_.get(); }  // null: the child has none
  // From then on touches of what is missing are faults. `protect`: writes to what may only be read,
  // too. 0 or a negative errno.
  int guard(bool protect) noexcept;
  int guard_with_bars() noexcept;  // and pages may be barred; not together with `protect`
  void unguard() noexcept {
    if (loop_) loop_->end();  // before the pointer goes, which its handlers read
    loop_.reset();
  }
  void wake(BlockIndex index) noexcept { loop_->wake(address(index), kGranule); }

  // Whether a fork copies all of the arena, or nothing.
  void show_to_child(bool shown) noexcept;
  // In a child: a loop of its own takes the place of the parent's, which is left alone. Throws.
  void open_loop_in_child(FaultHandler missing, void* context);
  // In a child without a guard: the arena may not be touched at all.
  void close_to_child() noexcept;

 private:
  std::unique_ptr<FaultLoop> loop_;
  std::uint64_t bytes_;
  std::uintptr_t begin_;
};

}  // namespace sentinel
