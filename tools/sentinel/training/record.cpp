// `sentinel record`: starts a training whose first steady step is profiled.
#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>

#include "cli/profile_files.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "runtime/limit/tally.h"
#include "sentinel/error.h"
#include "trace/store.h"
#include "training/launch.h"

namespace sentinel::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultOutput = "profile.sentinel";
void tell_incomplete(const std::string& path) {
  const auto meta = read_profile(path).meta;
  if (!meta.complete)
    say(fmt::format("{} is incomplete: {}. `sentinel report {}` shows what there is", path,
                    meta.incomplete_reason, path));
}

int no_profile(const fs::path& pattern, int status) {
  say(fmt::format("no profile was written to {}: no training step was seen", pattern.string()));
  say("a step ends where an optimizer of PyTorch or Keras steps, or where the program calls "
      "sentinel_step(); it takes four steps. A Python started with -E, -I or -S does not load "
      "Sentinel; `sentinel doctor` tells about PyTorch and TensorFlow");
  return status == 0 ? kOwnFailure : status;
}

// Put there since the program began: by a program that root has started as the user who owns the
// folder, or by somebody else.
int not_own(const std::string& path, int status) {
  struct stat file {
  }, folder{};
  const bool may_be = geteuid() == 0 && lstat(path.c_str(), &file) == 0 &&
                      stat(fs::path(path).parent_path().c_str(), &folder) == 0 &&
                      folder.st_uid == file.st_uid;
  if (may_be)
    say(fmt::format("{} is another user's, as which the program may have run", path));
  else
    say(
        fmt::format("no profile was written to {}, which is another user's; name another place "
                    "with -o",
                    path));
  return status == 0 && !may_be ? kOwnFailure : status;
}

int record(Launch& launch) {
  if (!launch.given("SENTINEL_OUTPUT") && std::getenv("SENTINEL_OUTPUT") == nullptr)
    launch.values["SENTINEL_OUTPUT"] = kDefaultOutput;
  enter_environment(launch);
  const fs::path pattern = fs::absolute(std::getenv("SENTINEL_OUTPUT"));
  const auto before = files_of(pattern);
  require_writable_profile(pattern);
  const auto tally = Tally::make();  // by which trainings know that we are killed
  const int status = run_command(launch.command);
  bool any = false;
  std::string others;
  for (const auto& [path, stamp] : files_of(pattern)) {
    if (const auto old = before.find(path); old != before.end() && old->second == stamp) continue;
    if (!is_own(path)) {
      others = path;
      continue;
    }
    any = true;
    tell_incomplete(path);
  }
  if (!any && !others.empty()) return not_own(others, status);
  if (any || status == kOwnFailure) return status;  // the library has said why
  return no_profile(pattern, status);
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
