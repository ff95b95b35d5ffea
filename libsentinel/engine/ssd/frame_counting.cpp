// The switch between counting and moving: the arena's mapping is replaced at the same addresses,
// atomically, while other threads may go on using it (DESIGN.md, "From counting to moving and
// back").
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "alloc/ranges.h"
#include "engine/ssd/frame_engine.h"
#include "sentinel/error.h"

namespace sentinel {

// When this returns, the former source is no longer called: setting a handler waits for it.
void FrameEngine::count_with(CountFault count, void* source) noexcept {
  count_fault_ = nullptr;
  loop_->set_minor_handler(&FrameEngine::on_minor, this);
  count_source_ = source;
  count_fault_ = count;
}

bool FrameEngine::count_fault(const Fault& fault) noexcept {
  const auto count = count_fault_.load();
  return count != nullptr && count(count_source_, fault);
}

// Every resident block is taken out and copied into the memory file; a thread that touches one
// meanwhile waits. Then the file's mapping takes the arena's place in one step.
int FrameEngine::start_counting() noexcept {
  if (counting_ || !loop_->can_count()) return counting_ ? -EALREADY : -EOPNOTSUPP;
  if (const int code = make_shared_frames(); code != 0) return code;
  Guard guard(lock_);
  wait_until_settled(guard);
  guard.unlock();
  const int code = to_shared();
  guard.lock();
  if (code == 0) {
    counting_ = true;
    shared_->count(true);
  }
  thaw();
  return code;
}

int FrameEngine::stop_counting() noexcept {
  if (!counting_) return -EALREADY;
  Guard guard(lock_);
  wait_until_settled(guard);
  guard.unlock();
  const int code = to_moved();
  guard.lock();
  if (code == 0) {
    counting_ = false;
  }
  thaw();
  return code;
}

int FrameEngine::make_shared_frames() noexcept {
  try {
    if (!shared_) shared_ = std::make_unique<SharedFrames>(*loop_, arena_, arena_bytes_, pinned_);
    return 0;
  } catch (const Error& error) {
    return -(error.code() != 0 ? error.code() : ENOMEM);
  }
}

void FrameEngine::thaw() noexcept {
  frozen_ = false;
  if (child_) return;  // nothing moves in a child
  if (!reader_) {      // no slow tier, no promoter: frames are there for whoever waited
    Guard guard(lock_, std::adopt_lock);
    while (!demanded_.empty()) start_promotion(demanded_.front(), guard);
    guard.release();
    return;
  }
  reader_->wake();
  writer_->wake();
}

// Puts what `prepare` maps, guarded, in the arena's place in one step.
int FrameEngine::replace_arena(const std::function<std::uintptr_t()>& prepare,
                               bool minor) noexcept {
  std::uintptr_t prepared = 0;
  try {
    prepared = prepare();
  } catch (const Error& error) {
    return -(error.code() != 0 ? error.code() : ENOMEM);
  }
  if (minor || slow_) madvise(reinterpret_cast<void*>(prepared), arena_bytes_, MADV_DONTFORK);
  int code = loop_->register_range(prepared, arena_bytes_, true, minor, !minor && pieces_);
  if (code == 0) code = loop_->replace_mapping(arena_, arena_bytes_, prepared);
  if (code != 0) munmap(reinterpret_cast<void*>(prepared), arena_bytes_);
  return code;
}

// Frames of blocks in which nothing lives, for whoever needs some next.
void FrameEngine::reuse_dead_blocks() noexcept {
  Guard guard(lock_);
  wait_until_settled(guard);
  guard.unlock();
  drop_dead_blocks();
  guard.lock();
  thaw();
}

// Nothing moves meanwhile and no tensor is born: the caller sees to it.
void FrameEngine::drop_dead_blocks() noexcept {
  for (std::size_t i = resident_.size(); i-- > 0;) {
    const auto index = resident_[i];
    auto& block = blocks_[index];
    if (block.queue != QueueId::dead) continue;
    Token token = kNoToken;
    if (backing_->take(index, token) != 0) continue;
    backing_->scrub(index, token);
    free_.push_back(token);
    unset_resident(index);
    block.state = BlockState::empty;
  }
}

// Within the budget but for one frame: that of the copy under way.
int FrameEngine::to_shared() noexcept {
  drop_dead_blocks();
  for (const auto token : free_) frames_in_pool_->destroy(token);
  frames_ -= free_.size();
  free_.clear();
  std::vector<BlockIndex> copied;
  int code = 0;
  for (const auto index : resident_) {
    Token token = kNoToken;
    if (code = frames_in_pool_->take(index, token); code != 0) break;
    std::memcpy(shared_->buffer(index, token), frames_in_pool_->buffer(index, token), kGranule);
    frames_in_pool_->destroy(token);
    copied.push_back(index);
  }
  if (code == 0)
    code = replace_arena(
        [this] { return map_shared(shared_->descriptor(), arena_bytes_, kGranule); }, true);
  if (code == 0)
    backing_ = shared_.get();
  else
    for (const auto index : copied) {
      copy_back(index);
      shared_->scrub(index, 0);
    }
  return code;
}

// The last block comes back first, so that what has come back is the file's end and is let go.
int FrameEngine::to_moved() noexcept {
  if (const int code =
          replace_arena([this] { return reserve_anonymous(arena_bytes_, kGranule); }, false);
      code != 0)
    return code;
  drop_dead_blocks();
  if (const int code = shared_->seal(); code != 0) return code;
  backing_ = frames_in_pool_.get();
  auto blocks = resident_;
  std::ranges::sort(blocks, std::greater{});
  for (const auto index : blocks) {
    copy_back(index);
    shared_->drop_from(index);
  }
  shared_.reset();
  frames_ -= free_.size();  // a token of the memory file names no frame of the pool
  free_.clear();
  return 0;
}

// From the memory file to a frame in the arena.
void FrameEngine::copy_back(BlockIndex index) noexcept {
  const auto token = frames_in_pool_->create();
  if (token < 0) fail("could not get memory for a frame", -token);
  std::memcpy(frames_in_pool_->buffer(index, token), shared_->buffer(index, token), kGranule);
  if (const int code = frames_in_pool_->install(index, token); code != 0)
    fail("could not put a frame in its place", -code);
}

}  // namespace sentinel
