#include <fmt/format.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "launch.h"
#include "sentinel/error.h"
#include "terminal.h"
#include "trace/store.h"
#include "verbs.h"

namespace sentinel::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultOutput = "profile.sentinel";
constexpr std::string_view kPid = "%p";

// Files that the pattern (with %p) stands for, each with what changes when it is written.
using Files = std::map<std::string, std::pair<ino_t, std::int64_t>>;

bool stands_for(const std::string& pattern, const std::string& name) {
  const auto at = pattern.find(kPid);
  if (at == pattern.npos) return pattern == name;
  const auto tail = pattern.size() - at - kPid.size();
  return name.size() > at + tail && name.starts_with(pattern.substr(0, at)) &&
         name.ends_with(pattern.substr(at + kPid.size())) &&
         name.substr(at, name.size() - at - tail).find_first_not_of("0123456789") == name.npos;
}

Files files_of(const fs::path& pattern) {
  Files files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(pattern.parent_path(), ignored)) {
    struct stat found {};
    if (!stands_for(pattern.filename(), entry.path().filename())) continue;
    if (stat(entry.path().c_str(), &found) != 0) continue;
    files[entry.path()] = {found.st_ino,
                           found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec};
  }
  return files;
}

// Before hours of training rather than after them.
void require_writable(const fs::path& pattern, const Files& present) {
  const auto folder = pattern.parent_path();
  if (!fs::is_directory(folder))
    throw Error(fmt::format("{} is not a directory; make it, or name another place with -o",
                            folder.string()));
  if (access(folder.c_str(), W_OK) != 0)
    throw Error(fmt::format("cannot write into {}; name another place with -o", folder.string()),
                errno);
  for (const auto& [path, stamp] : present)
    if (!fs::is_regular_file(path) || (fs::file_size(path) != 0 && !is_stored_profile(path)))
      throw Error(fmt::format(
          "{} exists and is not a Sentinel profile; it is left as it is: name another one with -o",
          path));
}

void tell_incomplete(const std::string& path) {
  const auto meta = read_profile(path).meta;
  if (!meta.complete)
    say(fmt::format("{} is incomplete: {}. `sentinel report {}` shows what there is", path,
                    meta.incomplete_reason, path));
}

int no_profile(const fs::path& pattern, int status) {
  say(fmt::format("no profile was written to {}: no training step was seen", pattern.string()));
  say("a step ends where a PyTorch optimizer steps, or where the program calls sentinel_step(); it "
      "takes four steps. "
      "A Python started with -E, -I or -S does not load Sentinel; `sentinel doctor` tells about "
      "PyTorch");
  return status == 0 ? kOwnFailure : status;
}

int record(Launch& launch) {
  if (!launch.given("SENTINEL_OUTPUT") && std::getenv("SENTINEL_OUTPUT") == nullptr)
    launch.values["SENTINEL_OUTPUT"] = kDefaultOutput;
  enter_environment(launch);
  const fs::path pattern = fs::absolute(std::getenv("SENTINEL_OUTPUT"));
  const auto before = files_of(pattern);
  require_writable(pattern, before);
  const int status = run_command(launch.command);
  bool any = false;
  for (const auto& [path, stamp] : files_of(pattern)) {
    if (const auto old = before.find(path); old != before.end() && old->second == stamp) continue;
    any = true;
    tell_incomplete(path);
  }
  return any ? status : no_profile(pattern, status);
}

}  // namespace

Action declare_record(Form& form) {
  const auto launch = std::make_shared<Launch>();
  launch->mode = Mode::record;
  form.rows = launch_rows(*launch);
  form.takes_command = true;
  return [launch, &form] {
    launch->command = form.command;
    return record(*launch);
  };
}

}  // namespace sentinel::cli
