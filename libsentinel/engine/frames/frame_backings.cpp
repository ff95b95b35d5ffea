// Opens the arena's backing for training, and another one while accesses are counted.
#include "engine/frames/frame_backings.h"

#include <cerrno>

#include "sentinel/error.h"

namespace sentinel {

void FrameBackings::open(bool move, const std::optional<FrameMemory>& memory) {
  auto& loop = *arena_.loop();
  move = move && loop.can_move();
  if (memory && !move)
    throw Error(
        "two nodes over a file need memory that moves by UFFDIO_MOVE, as from Linux 6.8 on: leave "
        "--node-memory out",
        EOPNOTSUPP);
  pool_ = move ? make_moved_frames(loop, arena_.begin(), arena_.bytes(), memory)
               : make_copied_frames(loop, arena_.begin(), arena_.bytes());
  use_pool();
}

int FrameBackings::make_shared() noexcept {
  try {
    if (!shared_)
      shared_ =
          std::make_unique<SharedFrames>(*arena_.loop(), arena_.begin(), arena_.bytes(), pinned_);
    return 0;
  } catch (const Error& error) {
    return -(error.code() != 0 ? error.code() : ENOMEM);
  }
}

}  // namespace sentinel
