#include "profile_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "base/output.h"
#include "sentinel/error.h"
#include "trace/database/profile_file.h"
#include "trace/store.h"

namespace sentinel::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPid = "%p";

bool stands_for(const std::string& pattern, const std::string& name) {
  const auto at = pattern.find(kPid);
  if (at == pattern.npos) return pattern == name;
  const auto tail = pattern.size() - at - kPid.size();
  return name.size() > at + tail && name.starts_with(pattern.substr(0, at)) &&
         name.ends_with(pattern.substr(at + kPid.size())) &&
         name.substr(at, name.size() - at - tail).find_first_not_of("0123456789") == name.npos;
}

// With a process's number in it.
std::string longest(std::string pattern) {
  if (const auto at = pattern.find(kPid); at != pattern.npos) pattern.replace(at, 2, "4194304");
  return pattern;
}

}  // namespace

Files files_of(const fs::path& pattern) {
  Files files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fs::absolute(pattern).parent_path(), ignored)) {
    struct stat found {};
    if (!stands_for(pattern.filename(), entry.path().filename())) continue;
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
