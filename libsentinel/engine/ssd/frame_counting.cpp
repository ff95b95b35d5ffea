// Copies the arena into shared frames for a counted step, and back into movable ones.
#include "engine/ssd/frame_counting.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <vector>

#include "alloc/ranges.h"
#include "sentinel/error.h"

namespace sentinel {

// Puts what `prepare` maps, guarded, in the arena's place in one step.
template <class Prepare>
int FrameCounting::replace_arena(Prepare&& prepare, bool minor) noexcept {
  std::uintptr_t prepared = 0;
  try {
    prepared = prepare();
  } catch (const Error& error) {
    return -(error.code() != 0 ? error.code() : ENOMEM);
  }
  const auto bytes = arena_.bytes();
  if (minor || transfers_.is_open())
    madvise(reinterpret_cast<void*>(prepared), bytes, MADV_DONTFORK);
  auto* loop = arena_.loop();
  int code = loop->register_range(prepared, bytes, true, minor, !minor && budget_.pieces());
  if (code == 0) code = loop->replace_mapping(arena_.begin(), bytes, prepared);
  if (code != 0) munmap(reinterpret_cast<void*>(prepared), bytes);
  return code;
}

void FrameCounting::drop_dead_blocks() noexcept {
  for (std::size_t i = blocks_.resident().size(); i-- > 0;) {
    const auto index = blocks_.resident()[i];
    auto& block = blocks_[index];
    if (block.queue != QueueId::dead) continue;
    Token token = kNoToken;
    if (backings_->take(index, token) != 0) continue;
    if (auto* nodes = budget_.nodes()) nodes->taken(index, token);
    backings_->scrub(index, token);
    budget_.keep_free(token);
    blocks_.unset_resident(index);
    block.state = BlockState::empty;
  }
}

// Every resident block is taken out and copied into the memory file; a thread that touches one
// meanwhile waits. Then the file's mapping takes the arena's place in one step. Within the budget
// but for one frame: that of the copy under way.
int FrameCounting::to_shared() noexcept {
  drop_dead_blocks();
  budget_.destroy_all_free();
  if (auto* nodes = budget_.nodes()) nodes->stop();
  auto& pool = backings_.pool();
  auto& shared = backings_.shared();
  std::vector<BlockIndex> copied;
  int code = 0;
  for (const auto index : blocks_.resident()) {
    Token token = kNoToken;
    if (code = pool.take(index, token); code != 0) break;
    std::memcpy(shared.buffer(index, token), pool.buffer(index, token), kGranule);
    pool.destroy(token);
    copied.push_back(index);
  }
  if (code == 0)
    code = replace_arena([&] { return map_shared(shared.descriptor(), arena_.bytes(), kGranule); },
                         true);
  if (code == 0) {
    backings_.use_shared();
    return 0;
  }
  auto* nodes = budget_.nodes();
  for (const auto index : copied) {
    copy_back(index);
    shared.scrub(index, 0);
    if (nodes) nodes->now_slow(index);
  }
  if (nodes) nodes->go_on();
  return code;
}

// The last block comes back first, so that what has come back is the file's end and is let go.
int FrameCounting::to_moved() noexcept {
  if (const int code =
          replace_arena([this] { return reserve_anonymous(arena_.bytes(), kGranule); }, false);
      code != 0)
    return code;
  drop_dead_blocks();
  if (const int code = backings_.shared().seal(); code != 0) return code;
  backings_.use_pool();
  auto blocks = blocks_.resident();
  std::ranges::sort(blocks, std::greater{});
  for (const auto index : blocks) {
    copy_back(index);
    backings_.shared().drop_from(index);
  }
  backings_.end_shared();
  budget_.forget_free();  // a token of the memory file names no frame of the pool
  if (auto* nodes = budget_.nodes()) nodes->start_again(blocks_.resident().size());
  return 0;
}

// From the memory file to a frame in the arena.
void FrameCounting::copy_back(BlockIndex index) noexcept {
  auto& pool = backings_.pool();
  const auto token = pool.create();
  if (token < 0) transfers_.fail("could not get memory for a frame", -token);
  std::memcpy(pool.buffer(index, token), backings_.shared().buffer(index, token), kGranule);
  if (const int code = pool.install(index, token); code != 0)
    transfers_.fail("could not put a frame in its place", -code);
}

}  // namespace sentinel
