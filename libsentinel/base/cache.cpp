// Finds the user's cache, and refuses one through whose folders others could exchange files.
#include "base/cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/folder.h"
#include "base/input.h"
#include "base/output.h"
#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel::cache {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK;
constexpr InputKind kCached{"files of the cache", 1_MiB, "remove it: it will be made again"};

// Paths that are not absolute count as unset (XDG Base Directory Specification).
fs::path absolute_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value == '/' ? value : "";
}

fs::path passwd_home() {
  passwd entry{}, *found = nullptr;
  std::array<char, 16384> texts{};
  if (getpwuid_r(geteuid(), &entry, texts.data(), texts.size(), &found) != 0 || found == nullptr)
    return {};
  return found->pw_dir != nullptr && *found->pw_dir == '/' ? found->pw_dir : "";
}

fs::path home() {
  const auto named = absolute_variable("HOME");
  return named.empty() ? passwd_home() : named;
}

[[noreturn]] void refuse(const std::string& why, int code = 0) {
  throw Error(fmt::format("the cache {} is not used: {}", place(), why), code);
}

std::string mode_text(const struct stat& found) {
  return fmt::format("{:04o}", found.st_mode & 07777);
}

[[noreturn]] void refuse_folder(const OtherHand& hand) {
  const auto owner = hand.found.st_uid;
  if (owner != geteuid() && (owner != 0 || (hand.found.st_mode & kOthersWrite) == 0))
    refuse(
        fmt::format("{} belongs to user {}, not to user {} who runs this; name a folder of your "
                    "own with XDG_CACHE_HOME",
                    hand.folder, owner, geteuid()));
  refuse(fmt::format("others may write to {} (mode {}): chmod go-w {}", hand.folder,
                     mode_text(hand.found), hand.folder));
}

// Whoever may write to one of these folders decides which folder the path leads to. `own`: the
// cache itself, which is nobody else's; its parents may be root's, and sticky.
void require_chain(const Descriptor& folder, bool own) {
  struct stat found {};
  if (fstat(folder.get(), &found) != 0) refuse("it cannot be looked at", errno);
  if (own && (found.st_uid != geteuid() || (found.st_mode & kOthersWrite) != 0))
    refuse_folder({place(), found});
  const Descriptor parent(openat(folder.get(), own ? ".." : ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!parent) refuse("its parent cannot be opened", errno);
  if (const auto hand = other_hand(parent, kOthersWrite)) refuse_folder(*hand);
}

Descriptor open_checked(const fs::path& path, Absent absent, bool own);

// Where the parent is not to be trusted, nothing is made in it.
Descriptor make_folder(const fs::path& path, bool own) {
  const auto parent = open_checked(path.parent_path(), Absent::make, false);
  const auto name = path.filename();
  if (mkdirat(parent.get(), name.c_str(), 0700) != 0 && errno != EEXIST)
    refuse("cannot make " + path.string(), errno);
  Descriptor folder(openat(parent.get(), name.c_str(), kFolder | O_NOFOLLOW));
  if (!folder) refuse("cannot open " + path.string(), errno);
  require_chain(folder, own);
  return folder;
}

Descriptor open_checked(const fs::path& path, Absent absent, bool own) {
  Descriptor folder(open(path.c_str(), kFolder | (own ? O_NOFOLLOW : 0)));
  if (!folder && errno == ENOENT && absent == Absent::make && path != "/")
    return make_folder(path, own);
  if (!folder && (errno == ELOOP || errno == ENOTDIR))
    refuse(path.string() + " is no folder, or a symbolic link; name a folder with XDG_CACHE_HOME");
  if (!folder) refuse(path.string(), errno);
  require_chain(folder, own);
  return folder;
}

void require_file(const struct stat& found, const std::string& attempt, bool may_be_roots) {
  if (!S_ISREG(found.st_mode)) throw Error(attempt + ": it is not a regular file");
  if (found.st_uid != geteuid() && !(may_be_roots && found.st_uid == 0))
    throw Error(fmt::format("{}: it belongs to user {}, not to user {} who runs this; remove it",
                            attempt, found.st_uid, geteuid()));
  if ((found.st_mode & kOthersWrite) != 0)
    throw Error(fmt::format("{}: others may write to it (mode {}): look at it, then chmod go-w",
                            attempt, mode_text(found)));
}

Descriptor open_file(int folder, const std::string& name, const std::string& attempt,
                     bool may_be_roots) {
  Descriptor file(
      openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat found {};
  if (!file || fstat(file.get(), &found) != 0) throw Error(attempt, errno);
  require_file(found, attempt, may_be_roots);
  return file;
}

}  // namespace

std::string place() {
  if (const auto base = absolute_variable("XDG_CACHE_HOME"); !base.empty())
    return base / "sentinel";
  const auto at = home();
  return at.empty() ? "" : at / ".cache" / "sentinel";
}

// A home that is not there is not made.
Descriptor open_folder(Absent absent) {
  struct stat found {};
  if (absolute_variable("XDG_CACHE_HOME").empty() &&
      (home().empty() || stat(home().c_str(), &found) != 0))
    throw Error(
        "there is no cache: HOME names no folder and the user has no home; name one with "
        "XDG_CACHE_HOME");
  return open_checked(place(), absent, true);
}

std::string read(const std::string& name, const std::string& attempt) {
  const auto folder = open_folder(Absent::leave);
  return read_rest(open_file(folder.get(), name, attempt, false), attempt, kCached);
}

void write(const std::string& name, std::string_view text, const std::string& attempt) {
  Output file(open_folder(Absent::make), name, attempt, Readers::owner);
  file.write(text);
  file.keep();
}

Descriptor open_library(int folder, const std::string& name) {
  return open_file(folder, name, "cannot load " + name, true);
}

}  // namespace sentinel::cache
