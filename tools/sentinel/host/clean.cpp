// What a killed run leaves behind. The slow tier's file has no name, but for the moment in which a
// GPU's driver is told of it (--io cufile). What may stay as well are beginnings of files, SQLite's
// journals beside a profile, and adaptors of an older Sentinel.
//
// Only regular files of the user's own are touched, by their names in the folders that were opened:
// in /var/tmp anybody can put a link at such a name.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>

#include "base/cache.h"
#include "base/descriptor.h"
#include "base/folder.h"
#include "base/output.h"
#include "base/text.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "engine/io/slow_file.h"
#include "sentinel/error.h"
#include "trace/database/profile_file.h"
#include "trace/database/side_files.h"
#include "trace/database/sqlite.h"
#include "trace/store.h"

namespace sentinel::cli {
namespace {

namespace fs = std::filesystem;

struct Settings {
  std::vector<std::string> folders{"."};
  bool dry_run = false;
};

enum class Remedy { remove, fold };  // fold: a journal into the profile that it belongs to

struct Folder {
  fs::path path;
  Descriptor open;
};

// A regular file of the user's own, and no link: `found` is of itself.
struct Entry {
  std::shared_ptr<Folder> folder;
  std::string name;
  struct stat found {};
  fs::path path() const { return folder->path / name; }
};

struct Remnant {
  Entry entry;
  const char* what;
  Remedy remedy = Remedy::remove;
};
using Remnants = std::vector<Remnant>;

bool is_own_file(const Folder& folder, const std::string& name, struct stat& found) {
  return fstatat(folder.open.get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISREG(found.st_mode) && found.st_uid == geteuid();
}

bool profile_at(const fs::path& path) {
  try {
    return fs::is_regular_file(path) && is_stored_profile(path);
  } catch (const Error&) {
    return false;
  }
}

// A live writer holds a write transaction. SQLite is given only what it may apply, and where nobody
// else may exchange files.
bool being_written(const fs::path& path) {
  try {
    struct stat found {};
    if (other_hand_at(path, S_IWOTH)) return true;
    if (lstat(path.c_str(), &found) != 0 || found.st_uid != geteuid()) return true;
    if (!side_files(path, found, "").any()) return true;
    sqlite::Database db(path, SQLITE_OPEN_READWRITE, "");
    const int result = db.try_exec("BEGIN IMMEDIATE");
    if (result == SQLITE_OK) db.try_exec("ROLLBACK");
    return (result & 0xff) == SQLITE_BUSY;
  } catch (const Error&) {
    return true;  // cannot be told: it is left alone
  }
}

bool is_gone(int process) { return kill(process, 0) != 0 && errno == ESRCH; }

// "torch-….so.4711", which only the cache has: the adaptor's own way to write a file.
bool compiler_gone(const std::string& name) {
  const auto digits = name.substr(name.rfind('.') + 1);
  if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != digits.npos)
    return false;
  return is_gone(std::stoi(digits));
}

void beside_profiles(const Entry& entry, Remnants& found) {
  const auto name = entry.path().string();
  if (name.ends_with(".json") || !name.ends_with("-wal")) return;
  const fs::path owner = name.substr(0, name.size() - 4);
  if (profile_at(owner) && !being_written(owner))
    found.push_back(
        {entry, "journal of a recording that was killed; put into its profile", Remedy::fold});
}

void unfinished_files(const Entry& entry, Remnants& found) {
  if (const auto writer = writer_of(entry.name); writer && is_gone(*writer))
    found.push_back({entry, "the beginning of a file"});
}

// Of a profile that was to come after them.
void unfinished_side_files(const Entry& entry, Remnants& found) {
  const auto name = entry.name.substr(0, entry.name.rfind('-'));
  const auto writer = name != entry.name ? writer_of(name) : std::nullopt;
  if (writer && is_gone(*writer) && !fs::exists(entry.folder->path / name))
    found.push_back({entry, "beside a file that never began"});
}

// When a file whose name begins so was changed last; 0: there is none.
std::time_t newest(const fs::path& folder, std::string_view beginning) {
  std::time_t last = 0;
  std::error_code none;
  for (const auto& file : fs::directory_iterator(folder, none)) {
    struct stat found {};
    if (file.path().filename().string().starts_with(beginning) &&
        stat(file.path().c_str(), &found) == 0)
      last = std::max(last, found.st_mtime);
  }
  return last;
}

// "torch-2.13.0-….so", and the mark that one of TensorFlow's has been tried, "….so.works".
void stale_adaptors(const Entry& entry, Remnants& found) {
  const auto& name = entry.name;
  const auto of = [&](const char* part) { return name.find(part) != name.npos; };
  const char* source = name.starts_with("torch-")                       ? "torch"
                       : !name.starts_with("tensorflow-") || !of(".so") ? nullptr
                       : of("-ops-")                                    ? "tensorflow_ops"
                                                                        : "tensorflow.";
  if (source == nullptr) return;
  if (of(".so.") && compiler_gone(name))
    found.push_back({entry, "an adaptor that was not finished"});
  const auto sources =
      fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib/sentinel/source";
  if (entry.found.st_mtime >= newest(sources, source)) return;
  if (name.ends_with(".so")) found.push_back({entry, "an adaptor of another version"});
  if (name.ends_with(".so.works")) found.push_back({entry, "of an adaptor of another version"});
}

void slow_files(const Entry& entry, Remnants& found) {
  if (is_left_behind(entry.path())) found.push_back({entry, "a file of the slow tier"});
}

std::string slow_directories() {
  const char* set = std::getenv("SENTINEL_DIR");
  return set != nullptr && *set != '\0' ? set : "/var/tmp";
}

Folder open_folder(const std::string& path, int flags = 0) {
  return {path, Descriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags))};
}

template <class... Look>
void look_into(Folder opened, Remnants& found, Look... look) {
  const auto folder = std::make_shared<Folder>(std::move(opened));
  if (!folder->open) return;
  std::error_code none;
  for (const auto& each :
       fs::directory_iterator(fmt::format("/proc/self/fd/{}", folder->open.get()), none)) {
    Entry entry{folder, each.path().filename()};
    if (is_own_file(*folder, entry.name, entry.found)) (look(entry, found), ...);
  }
}

// Profiles that were to come to a folder in which others may exchange files.
void look_into_profile_folders(Remnants& found) {
  std::error_code none;
  for (const auto& each : fs::directory_iterator(fs::temp_directory_path(none), none)) {
    if (!each.path().filename().string().starts_with(kProfileFolder)) continue;
    auto folder = open_folder(each.path(), O_NOFOLLOW);
    struct stat owner {};
    if (folder.open && fstat(folder.open.get(), &owner) == 0 && owner.st_uid == geteuid())
      look_into(std::move(folder), found, unfinished_files, unfinished_side_files);
  }
}

// A cache that is not used has nothing of ours.
void look_into_cache(Remnants& found) try {
  auto folder = cache::open_folder(cache::Absent::leave);
  look_into({cache::place(), std::move(folder)}, found, stale_adaptors, unfinished_files);
} catch (const Error& error) {
  if (error.code() != ENOENT) say(error.what());
}

Remnants remnants(const Settings& s) {
  Remnants found;
  for (const auto& path : s.folders) {
    auto folder = open_folder(path);
    if (!folder.open) throw Error(fmt::format("{} is not a directory that can be read", path));
    look_into(std::move(folder), found, beside_profiles, unfinished_files, slow_files);
  }
  for (const auto& path : split_directories(slow_directories()))
    if (std::ranges::find(s.folders, path) == s.folders.end())
      look_into(open_folder(path), found, slow_files);
  look_into_profile_folders(found);
  look_into_cache(found);
  return found;
}

// By its name in the folder that was opened, if it still is the user's own file.
void remove(const Folder& folder, const std::string& name) {
  struct stat found {};
  if (!is_own_file(folder, name, found)) return;
  if (unlinkat(folder.open.get(), name.c_str(), 0) != 0 && errno != ENOENT)
    throw Error(fmt::format("cannot remove {}", (folder.path / name).string()), errno);
}

void settle(const Remnant& remnant) {
  const auto& [folder, name, found] = remnant.entry;
  if (remnant.remedy == Remedy::fold) {
    const auto path = remnant.entry.path().string();
    sqlite::Database db(path.substr(0, path.size() - 4), SQLITE_OPEN_READWRITE,
                        "cannot put the journal into " + path);
    db.exec("PRAGMA journal_mode=DELETE");
    return;
  }
  remove(*folder, name);
  if (writer_of(name))  // of a profile more was made, by SQLite
    for (const char* suffix : {"-wal", "-shm", "-journal"}) remove(*folder, name + suffix);
  if (folder->path.filename().string().starts_with(kProfileFolder)) rmdir(folder->path.c_str());
}

int clean(const Settings& s) {
  const auto found = remnants(s);
  std::string text;
  for (const auto& remnant : found) {
    if (!s.dry_run) settle(remnant);
    text += fmt::format("{}: {}\n", printable(remnant.entry.path().lexically_normal().string()),
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
