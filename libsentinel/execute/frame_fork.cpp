// fork(): the child must find every tensor as it was, also those that the parent had moved out.
// Resident blocks are the kernel's business (copy on write). For absent ones the child opens a
// guard of its own and reads them from the same file, whose slots the parent keeps until the child
// has gone. Nothing is in flight across the fork, and no block is shared memory then.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "alloc/ranges.h"
#include "execute/frame_engine.h"

namespace sentinel {

void FrameEngine::before_fork() noexcept {
  lock_.lock();
  Guard guard(lock_, std::adopt_lock);
  wait_until_settled(guard);
  guard.release();
  if (slow_ && pipe2(child_pipe_, O_CLOEXEC) != 0)
    fail("could not make a pipe to keep a child's tensors by", errno);
}

void FrameEngine::after_fork_in_parent() noexcept {
  if (slow_ && child_pipe_[0] >= 0) {
    close(child_pipe_[1]);
    slow_->keep_for_child(child_pipe_[0]);
  }
  thaw();
  lock_.unlock();
}

// The child's copy of the arena raises no faults any more: absent blocks would read as zeros. The
// parent's threads do not exist here and their objects are left alone.
void FrameEngine::after_fork_in_child() noexcept {
  child_ = true;
  loop_->abandon_in_child();
  if (child_pipe_[0] >= 0) close(child_pipe_[0]);  // the other end stays open while the child lives
  bool absent = false;
  for (const auto& block : blocks_) absent |= block.slot >= 0;
  lock_.unlock();
  if (absent) serve_child();
}

void FrameEngine::serve_child() noexcept {
  try {
    child_buffer_ = reserve_anonymous(kGranule, kGranule);
    [[maybe_unused]] auto* parents = loop_.release();
    loop_ = FaultLoop::open();
    loop_->set_missing_handler(&FrameEngine::on_missing_in_child, this);
    const int code = loop_->register_range(arena_, arena_bytes_, true, false);
    if (code != 0) fail("could not guard the arena in a child process", -code);
  } catch (const std::exception&) {
    fail("could not guard the arena in a child process", EPERM);
  }
}

void FrameEngine::on_missing_in_child(void* self, const Fault& fault) noexcept {
  auto& engine = *static_cast<FrameEngine*>(self);
  const auto begin = fault.address & ~(kGranule - 1);
  const auto& block = engine.blocks_[(begin - engine.arena_) / kGranule];
  if (block.slot < 0) {  // nothing was there: one page, as the kernel would give
    engine.loop_->zero(fault.address & ~std::uint64_t{4095}, 4096);
    return;
  }
  for (std::uint64_t done = 0; done < kGranule;) {
    const auto n = pread(engine.slow_->descriptor(block.slot),
                         reinterpret_cast<char*>(engine.child_buffer_) + done, kGranule - done,
                         static_cast<off_t>(engine.slow_->offset(block.slot) + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) engine.fail("could not read a tensor in a child process", n < 0 ? errno : EIO);
    done += static_cast<std::uint64_t>(n);
  }
  if (const int code = engine.loop_->copy(begin, engine.child_buffer_, kGranule); code != 0)
    engine.fail("could not place a tensor in a child process", -code);
}

}  // namespace sentinel
