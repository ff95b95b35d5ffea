// Compares the arena that was asked for with the room for it, and names the limit in its way.
#include "runtime/limit/arena_size.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "base/units.h"
#include "engine/host/arena_room.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kLeast = 64_MiB;

std::string in_mib(std::uint64_t bytes) { return fmt::format("{}M", bytes / 1_MiB); }

}  // namespace

SessionOptions with_fitting_arena(SessionOptions options) {
  auto& tiers = options.tiers;
  if (options.gpu.device) return options;
  const auto room = arena_room();
  if (tiers.arena_bytes <= room.bytes) return options;
  if (room.bytes < kLeast)
    throw Error(
        fmt::format("{} leaves room for an arena of {}, and less than {} trains nothing: raise the "
                    "limit, or lift it with \"unlimited\"",
                    room.limit, print_bytes(room.bytes), print_bytes(kLeast)));
  if (tiers.arena_asked)
    throw Error(
        fmt::format("--arena {} does not fit: {} leaves room for --arena {}, the largest that "
                    "does; take that, or raise the limit",
                    in_mib(tiers.arena_bytes), room.limit, in_mib(room.bytes)));
  tiers.arena_bytes = room.bytes;
  tiers.arena_limit = room.limit;
  return options;
}

std::string told_of_arena(const SessionOptions& options) {
  if (options.tiers.arena_limit.empty()) return "";
  return fmt::format(
      "{} leaves addresses for {} of tensors (--arena {}); raise it where more are needed",
      options.tiers.arena_limit, print_bytes(options.tiers.arena_bytes),
      in_mib(options.tiers.arena_bytes));
}

std::string arena_remedy(int code) {
  if (code != ENOMEM && code != EFBIG) return "";
  const auto room = arena_room();
  if (room.limit.empty()) return "";
  return fmt::format("; {} leaves room for --arena {}: take that, or raise the limit", room.limit,
                     in_mib(room.bytes));
}

}  // namespace sentinel
