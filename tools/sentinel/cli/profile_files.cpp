// Finds the files that a name with %p stands for, and checks that one can be written.
#include "cli/profile_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <string_view>

#include "base/output.h"
#include "engine/host/ranks.h"
#include "sentinel/error.h"
#include "trace/database/profile_file.h"
#include "trace/store.h"

namespace sentinel::cli {
namespace {

namespace fs = std::filesystem;

// %p and %r stand for digits.
bool stands_for(std::string_view pattern, std::string_view name) {
  const auto at = std::min(pattern.find("%p"), pattern.find("%r"));
  if (at == pattern.npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, at))) return false;
  const auto rest = pattern.substr(at + 2);
  for (auto end = at; end < name.size() && std::isdigit(static_cast<unsigned char>(name[end]));)
    if (stands_for(rest, name.substr(++end))) return true;
  return false;
}

// With a process's number in it, or with a rank's.
std::string longest(std::string pattern) {
  for (const char* what : {"%p", "%r"})
    if (const auto at = pattern.find(what); at != pattern.npos) pattern.replace(at, 2, "4194304");
  return pattern;
}

}  // namespace

Files files_of(const fs::path& pattern) {
  Files files;
  std::error_code ignored;
  const auto own = pattern.filename().string(), of_ranks = with_rank(own);
  for (const auto& entry : fs::directory_iterator(fs::absolute(pattern).parent_path(), ignored)) {
    struct stat found {};
    const auto name = entry.path().filename().string();
    if (!stands_for(own, name) && !stands_for(of_ranks, name)) continue;
    if (stat(entry.path().c_str(), &found) != 0) continue;
    files[entry.path()] = {found.st_ino,
                           found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec};
  }
  return files;
}

bool is_own(const fs::path& path) {
  struct stat named {
  }, found{};
  return lstat(path.c_str(), &named) == 0 && stat(path.c_str(), &found) == 0 &&
         (named.st_uid == geteuid() || named.st_uid == 0) && found.st_uid == geteuid();
}

void require_writable_profile(const fs::path& pattern) {
  const auto folder = fs::absolute(pattern).parent_path();
  if (!fs::is_directory(folder))
    throw Error(fmt::format("{} is not a directory; make it, or name another place with -o",
                            folder.string()));
  if (access(folder.c_str(), W_OK) != 0)
    throw Error(fmt::format("cannot write into {}; name another place with -o", folder.string()),
                errno);
  const auto attempt = fmt::format("cannot write profile {}", pattern.string());
  output_place(pattern, attempt);
  require_place(longest(fs::absolute(pattern)), attempt);
  for (const auto& [path, stamp] : files_of(pattern))
    if (!fs::is_regular_file(path) || (fs::file_size(path) != 0 && !is_stored_profile(path)))
      throw Error(fmt::format(
          "{} exists and is not a Sentinel profile; it is left as it is: name another one with -o",
          path));
}

}  // namespace sentinel::cli
