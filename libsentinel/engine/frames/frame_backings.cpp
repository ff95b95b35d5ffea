// Opens the arena's backing for training, and another one while accesses are counted.
#include "engine/frames/frame_backings.h"

#include <cerrno>

#include "sentinel/error.h"

namespace sentinel {

void FrameBackings::open(bool move) {
  auto& loop = *arena_.loop();
  pool_ = move && loop.can_move() ? make_moved_frames(loop, arena_.begin(), arena_.bytes())
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
