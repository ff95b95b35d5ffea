// Arms the kernel's source over the arena, and takes the difference of its counts.
#include "runtime/limit/watch.h"

#include <cstdio>
#include <cstring>

#include "base/units.h"

namespace sentinel {
namespace {

// Few pages, so that an op opens each page that it uses, however small the model is: with a window
// as large as the cache, one that fits it would be opened once and never again.
constexpr std::uint32_t kWindow = 64;
constexpr std::uint64_t kAhead = 16u << 20;  // covered at once: each call is a system call

}  // namespace

Watch::Watch(std::uintptr_t arena)
    : source_({.window_pages = kWindow, .in_company = true, .most_tags = 1}), covered_(arena) {}

void Watch::cover(std::uintptr_t end) noexcept {
  if (end <= covered_) return;
  const auto bytes = round_up(end - covered_, kAhead);
  const ArmRange range{.begin = covered_, .bytes = bytes};
  if (const int code = source_.arm({&range, 1}); code != 0)
    std::fprintf(stderr, "sentinel: %zu bytes are not watched: %s\n",
                 static_cast<std::size_t>(bytes), std::strerror(-code));
  covered_ += bytes;
}

Watch::NodeCounts Watch::take() noexcept {
  const auto& status = source_.status();
  NodeCounts now, since;
  now.unplaced = loaded(status.unplaced);
  since.unplaced = now.unplaced - before_.unplaced;
  for (std::size_t node = 0; node < now.node.size(); ++node) {
    now.node[node] = loaded(status.node[node]);
    since.node[node] = now.node[node] - before_.node[node];
  }
  before_ = now;
  return since;
}

}  // namespace sentinel
