// What a killed run leaves behind. The slow tier's file has no name, but for the moment in which a
// GPU's driver is told of it (--io cufile). What may stay as well are beginnings of files, SQLite's
// journals beside a profile, and adaptors of an older Sentinel.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/text.h"
#include "execute/slow_file.h"
#include "sentinel/error.h"
#include "sim/machine_file.h"
#include "terminal.h"
#include "trace/sqlite.h"
#include "trace/store.h"
#include "verbs.h"

namespace sentinel::cli {
namespace {

namespace fs = std::filesystem;

struct Settings {
  std::vector<std::string> folders{"."};
  bool dry_run = false;
};

enum class Remedy { remove, fold };  // fold: a journal into the profile that it belongs to

struct Remnant {
  fs::path path;
  const char* what;
  Remedy remedy = Remedy::remove;
};
using Remnants = std::vector<Remnant>;

bool profile_at(const fs::path& path) {
  try {
    return fs::is_regular_file(path) && is_stored_profile(path);
  } catch (const Error&) {
    return false;
  }
}

// A live writer holds a write transaction.
bool being_written(const fs::path& path) {
  try {
    sqlite::Database db(path, SQLITE_OPEN_READWRITE, "");
    const int result = db.try_exec("BEGIN IMMEDIATE");
    if (result == SQLITE_OK) db.try_exec("ROLLBACK");
    return (result & 0xff) == SQLITE_BUSY;
  } catch (const Error&) {
    return true;  // cannot be told: it is left alone
  }
}

// The process that a temporary name ends with: "torch-….so.4711", "plan.json.4711.tmp".
bool writer_gone(std::string name) {
  if (name.ends_with(".tmp")) name.resize(name.size() - 4);
  const auto digits = name.substr(name.rfind('.') + 1);
  if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != digits.npos)
    return false;
  return kill(std::stoi(digits), 0) != 0 && errno == ESRCH;
}

void beside_profiles(const fs::path& path, Remnants& found) {
  const auto name = path.string();
  if (name.ends_with(".new") && profile_at(path) && !being_written(path))
    found.push_back({path, "the beginning of a profile"});
  if (name.ends_with(".json") || !name.ends_with("-wal")) return;
  const fs::path owner = name.substr(0, name.size() - 4);
  if (profile_at(owner) && !being_written(owner))
    found.push_back(
        {path, "journal of a recording that was killed; put into its profile", Remedy::fold});
}

void unfinished_plans(const fs::path& path, Remnants& found) {
  if (path.string().ends_with(".tmp") && writer_gone(path.filename()))
    found.push_back({path, "the beginning of a plan"});
}

// "torch-2.13.0-….so", and the mark that one of TensorFlow's has been tried, "….so.works".
void stale_adaptors(const fs::path& path, Remnants& found) {
  const auto name = path.filename().string();
  const auto of = [&](const char* part) { return name.find(part) != name.npos; };
  const char* source = name.starts_with("torch-")                       ? "torch.cpp"
                       : !name.starts_with("tensorflow-") || !of(".so") ? nullptr
                       : of("-ops-")                                    ? "tensorflow_ops.cpp"
                                                                        : "tensorflow.cpp";
  if (source == nullptr) return;
  if (of(".so.") && writer_gone(name)) found.push_back({path, "an adaptor that was not finished"});
  const auto sources =
      fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib/sentinel/source";
  if (!fs::exists(sources / source) ||
      fs::last_write_time(path) >= fs::last_write_time(sources / source))
    return;
  if (name.ends_with(".so")) found.push_back({path, "an adaptor of another version"});
  if (name.ends_with(".so.works")) found.push_back({path, "of an adaptor of another version"});
}

void slow_files(const fs::path& path, Remnants& found) {
  if (is_left_behind(path)) found.push_back({path, "a file of the slow tier"});
}

std::string slow_directories() {
  const char* set = std::getenv("SENTINEL_DIR");
  return set != nullptr && *set != '\0' ? set : "/var/tmp";
}

template <class... Look>
void look_into(const fs::path& folder, Remnants& found, Look... look) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.is_regular_file(none)) (look(entry.path(), found), ...);
}

Remnants remnants(const Settings& s) {
  Remnants found;
  for (const auto& folder : s.folders) {
    if (!fs::is_directory(folder)) throw Error(fmt::format("{} is not a directory", folder));
    look_into(folder, found, beside_profiles, unfinished_plans, slow_files);
  }
  for (const auto& folder : split_directories(slow_directories()))
    if (std::ranges::find(s.folders, folder) == s.folders.end())
      look_into(folder, found, slow_files);
  look_into(fs::path(sim::local_machine_path()).parent_path(), found, stale_adaptors);
  return found;
}

void settle(const Remnant& remnant) {
  if (remnant.remedy == Remedy::remove) return static_cast<void>(fs::remove(remnant.path));
  const auto name = remnant.path.string();
  sqlite::Database db(name.substr(0, name.size() - 4), SQLITE_OPEN_READWRITE,
                      "cannot put the journal into " + name);
  db.exec("PRAGMA journal_mode=DELETE");
}

int clean(const Settings& s) {
  const auto found = remnants(s);
  std::string text;
  for (const auto& remnant : found) {
    if (!s.dry_run) settle(remnant);
    text += fmt::format("{}: {}\n", printable(fs::path(remnant.path).lexically_normal().string()),
                        remnant.what);
  }
  const char* end = found.empty() ? "Nothing was left behind.\n"
                    : s.dry_run   ? "Nothing was changed: leave out --dry-run.\n"
                                  : "";
  return print(text + end);
}

}  // namespace

Action declare_clean(Form& form) {
  const auto s = std::make_shared<Settings>();
  form.rows = {
      {"DIR", "DIR", "where profiles and plans lie; the current directory if absent", &s->folders},
      {"--dry-run", "", "only tell", &s->dry_run},
  };
  return [s] { return clean(*s); };
}

}  // namespace sentinel::cli
