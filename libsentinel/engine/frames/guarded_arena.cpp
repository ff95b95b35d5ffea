// Reserves the arena, registers it with the fault loop, and prepares what a forked child sees.
#include "engine/frames/guarded_arena.h"

#include <sys/mman.h>

#include "alloc/ranges.h"

namespace sentinel {

GuardedArena::GuardedArena(std::uint64_t bytes)
    : loop_(FaultLoop::open()), bytes_(bytes), begin_(reserve_anonymous(bytes, kGranule)) {}

GuardedArena::~GuardedArena() { munmap(reinterpret_cast<void*>(begin_), bytes_); }

int GuardedArena::guard(bool protect) noexcept {
  return loop_->register_range(begin_, bytes_, true, false, protect);
}

int GuardedArena::guard_with_bars() noexcept {
  return loop_->register_for_bars(begin_, bytes_, true);
}

void GuardedArena::show_to_child(bool shown) noexcept {
  madvise(reinterpret_cast<void*>(begin_), bytes_, shown ? MADV_DOFORK : MADV_DONTFORK);
}

void GuardedArena::open_loop_in_child(FaultHandler missing, void* context) {
  [[maybe_unused]] auto* parents = loop_.release();
  loop_ = FaultLoop::open({.keeper = false});
  loop_->set_missing_handler(missing, context);
}

void GuardedArena::close_to_child() noexcept {
  mprotect(reinterpret_cast<void*>(begin_), bytes_, PROT_NONE);
}

}  // namespace sentinel
