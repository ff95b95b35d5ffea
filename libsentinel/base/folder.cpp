// Judges by owner and mode who else may exchange files in a folder.
#include "base/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/files.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

namespace fs = std::filesystem;

constexpr int kFolder = O_PATH | O_DIRECTORY | O_CLOEXEC;

std::string name_of(const Descriptor& folder) {
  std::error_code none;
  const auto name = fs::read_symlink(fmt::format("/proc/self/fd/{}", folder.get()), none);
  return none ? "one of its folders" : name.string();
}

// In a user namespace that knows few users root's files belong to the overflow user, as those of
// all who are not known do.
bool is_roots(uid_t owner) {
  static const bool knows_all = [] {
    const auto map = first_line("/proc/self/uid_map");
    return map.empty() || map.find("4294967295") != map.npos;
  }();
  static const auto overflow = first_line("/proc/sys/kernel/overflowuid");
  return owner == 0 || (!knows_all && std::to_string(owner) == overflow);
}

bool is_mine_or_roots(const struct stat& found) {
  return found.st_uid == geteuid() || is_roots(found.st_uid);
}

}  // namespace

std::optional<OtherHand> other_hand(const Descriptor& folder, mode_t writers) {
  Descriptor at(openat(folder.get(), ".", kFolder));
  struct stat here {
  }, below{};
  for (;; below = here) {
    if (!at || fstat(at.get(), &here) != 0) throw Error("cannot look at " + name_of(folder), errno);
    if (here.st_ino == below.st_ino && here.st_dev == below.st_dev) return std::nullopt;  // root
    const bool sticky = (here.st_mode & S_ISVTX) != 0;
    if (!is_mine_or_roots(here) || ((here.st_mode & writers) && !sticky))
      return OtherHand{name_of(at), here};
    if (sticky) return std::nullopt;
    at = Descriptor(openat(at.get(), "..", kFolder));
  }
}

std::optional<OtherHand> other_hand_at(const std::string& file, mode_t writers) {
  const auto folder = fs::absolute(file).parent_path();
  const Descriptor open_folder(open(folder.c_str(), kFolder));
  if (!open_folder) throw Error("cannot look at " + folder.string(), errno);
  return other_hand(open_folder, writers);
}

std::string print_hand(const OtherHand& hand) {
  if (!is_mine_or_roots(hand.found)) return fmt::format("it belongs to user {}", hand.found.st_uid);
  return fmt::format("others may write to it (mode {:04o})", hand.found.st_mode & 07777);
}

}  // namespace sentinel
