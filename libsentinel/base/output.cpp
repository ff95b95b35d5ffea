// Writes a file beside its place under a name of its own, and renames it once it is whole.
#include "base/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <utility>

#include "sentinel/error.h"

namespace sentinel {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as the kernel has it
constexpr mode_t kPermissions = 0777;
constexpr std::string_view kUnfinished = ".sentinel-tmp";

// Where a file comes to lie. folder: empty where `path` leads to a device or a pipe, which has no
// other name.
struct Target {
  fs::path path;
  Descriptor folder;
  std::string name;
};

std::uint32_t random_number() {
  std::uint32_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) throw Error("no random number", errno);
  return number;
}

// Goes down a path part by part, as the kernel does, but follows no link of another user's.
class Walk {
 public:
  Walk(const fs::path& path, const std::string& attempt) : path_(path), attempt_(attempt) {
    begin(path);
  }

  Target end() {
    struct stat target {
    }, found{};
    const bool exists = stat(path_.c_str(), &target) == 0;
    const bool leads_to_file = !exists || S_ISREG(target.st_mode);
    for (;;) {
      const std::string part = next();
      const bool last = parts_.empty(), there = look_at(part, found, last);
      if (there && S_ISLNK(found.st_mode)) {
        require_own(found, part);
        if (last && !leads_to_file) return {path_, {}, {}};
        follow(part);
      } else if (last) {
        if (there) require_replaceable(found, part);
        // /proc/self/fd/1 may lead to a file whose name is gone.
        if (exists && (!there || found.st_ino != target.st_ino || found.st_dev != target.st_dev))
          throw Error(
              fmt::format("{}: the file that {} leads to has no name", attempt_, path_.string()),
              ENOENT);
        return {told_ / part, std::move(folder_), part};
      } else {
        enter(part);
      }
    }
  }

 private:
  void begin(const fs::path& path) {
    for (auto at = path.end(); at != path.begin();)
      if (const auto part = (--at)->string(); part != "/") parts_.push_front(part);
    if (!folder_ || path.is_absolute()) {
      told_ = path.is_absolute() ? "/" : "";
      folder_ = Descriptor(open(path.is_absolute() ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
      if (!folder_) throw Error(attempt_, errno);
    }
  }
  std::string next() {
    while (!parts_.empty() && (parts_.front().empty() || parts_.front() == ".")) parts_.pop_front();
    if (parts_.empty()) throw Error(attempt_, EISDIR);
    auto part = parts_.front();
    parts_.pop_front();
    while (!parts_.empty() && parts_.front() == ".") parts_.pop_front();
    if (parts_.size() == 1 && parts_.front().empty()) throw Error(attempt_, EISDIR);  // "folder/"
    return part;
  }
  bool look_at(const std::string& part, struct stat& found, bool last) {
    if (fstatat(folder_.get(), part.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0) return true;
    if (last && errno == ENOENT) return false;
    throw Error(attempt_, errno);
  }
  void follow(const std::string& part) {
    if (++links_ > kMostLinks) throw Error(attempt_, ELOOP);
    std::array<char, PATH_MAX> target{};
    const auto size = readlinkat(folder_.get(), part.c_str(), target.data(), target.size());
    if (size < 0 || static_cast<std::size_t>(size) == target.size())
      throw Error(attempt_, size < 0 ? errno : ENAMETOOLONG);
    const fs::path path(std::string(target.data(), static_cast<std::size_t>(size)));
    auto rest = std::exchange(parts_, {});
    begin(path);
    parts_.insert(parts_.end(), rest.begin(), rest.end());
  }
  void enter(const std::string& part) {
    Descriptor folder(
        openat(folder_.get(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder) throw Error(attempt_, errno);
    folder_ = std::move(folder);
    told_ /= part;
  }
  [[noreturn]] void refuse(const struct stat& found, const std::string& part) const {
    throw Error(
        fmt::format("{}: {} belongs to user {}; name another file, or remove that one first",
                    attempt_, (told_ / part).string(), found.st_uid));
  }
  void require_own(const struct stat& found, const std::string& part) const {
    if (found.st_uid != geteuid() && found.st_uid != 0) refuse(found, part);
  }
  // In a folder of their own another user's file is theirs to have replaced.
  void require_replaceable(const struct stat& found, const std::string& part) const {
    struct stat folder {};
    if (found.st_uid == geteuid() || found.st_uid == 0) return;
    if (fstat(folder_.get(), &folder) == 0 && folder.st_uid == found.st_uid) return;
    refuse(found, part);
  }

  const fs::path path_;
  const std::string& attempt_;
  std::deque<std::string> parts_;
  Descriptor folder_;
  fs::path told_;
  int links_ = 0;
};

}  // namespace

std::string output_place(const std::string& path, const std::string& attempt) {
  return Walk(path, attempt).end().path;
}

std::string unfinished_name(std::string_view name) {
  constexpr std::size_t kLongestBeginning = 200;  // of the 255 bytes of a name
  return fmt::format("{}.{:08x}.{}{}", name.substr(0, kLongestBeginning), random_number(), getpid(),
                     kUnfinished);
}

std::optional<int> writer_of(std::string_view unfinished) {
  constexpr std::size_t kRandom = 8, kLongest = 9;
  if (!unfinished.ends_with(kUnfinished)) return std::nullopt;
  unfinished.remove_suffix(kUnfinished.size());
  const auto dot = unfinished.rfind('.');
  if (dot == unfinished.npos || dot < kRandom + 1 || unfinished[dot - kRandom - 1] != '.')
    return std::nullopt;
  const auto digits = unfinished.substr(dot + 1),
             random = unfinished.substr(dot - kRandom, kRandom);
  if (digits.empty() || digits.size() > kLongest ||
      digits.find_first_not_of("0123456789") != digits.npos ||
      random.find_first_not_of("0123456789abcdef") != random.npos)
    return std::nullopt;
  return std::stoi(std::string(digits));
}

Output::Output(const std::string& path, std::string attempt, Readers readers)
    : attempt_(std::move(attempt)) {
  auto place = Walk(path, attempt_).end();
  struct stat found {};
  const bool exists = place.folder && fstatat(place.folder.get(), place.name.c_str(), &found,
                                              AT_SYMLINK_NOFOLLOW) == 0;
  if (exists && S_ISDIR(found.st_mode)) throw Error(attempt_, EISDIR);
  if (!place.folder || (exists && !S_ISREG(found.st_mode))) {
    open_directly(place.path);
    return;
  }
  name_ = std::move(place.name);
  folder_ = std::move(place.folder);
  make(readers);
  if (exists && readers == Readers::everybody) fchmod(file_.get(), found.st_mode & kPermissions);
}

Output::Output(Descriptor folder, std::string name, std::string attempt, Readers readers)
    : attempt_(std::move(attempt)), name_(std::move(name)), folder_(std::move(folder)) {
  make(readers);
}

Output::~Output() {
  if (!fresh_.empty()) unlinkat(folder_.get(), fresh_.c_str(), 0);
}

// The name ends as `sentinel clean` knows it: with the process that writes.
void Output::make(Readers readers) {
  constexpr int kTries = 100;
  const mode_t mode = readers == Readers::owner ? 0600 : 0666;
  for (int tries = 0; tries < kTries && !file_; ++tries) {
    auto fresh = unfinished_name(name_);
    file_ = Descriptor(openat(folder_.get(), fresh.c_str(),
                              O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (file_) fresh_ = std::move(fresh);
    if (!file_ && errno != EEXIST) break;
  }
  if (!file_) throw Error(attempt_, errno);
}

// A pipe that nobody reads is an error at once, not a wait.
void Output::open_directly(const std::string& place) {
  file_ = Descriptor(open(place.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file_ && errno == ENXIO) throw Error(attempt_ + ": nobody reads from it", ENXIO);
  struct stat found {};
  if (!file_ || fstat(file_.get(), &found) != 0) throw Error(attempt_, errno);
  if (!S_ISFIFO(found.st_mode) && !S_ISCHR(found.st_mode))
    throw Error(attempt_ + ": it is no file, pipe or terminal; name a file");
  fcntl(file_.get(), F_SETFL, O_WRONLY);  // from here on a slow reader is waited for
}

void Output::write(std::string_view text) {
  while (!text.empty()) {
    const auto n = ::write(file_.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(attempt_, errno);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

void Output::keep() {
  if (close(file_.release()) != 0) throw Error(attempt_, errno);
  if (fresh_.empty()) return;
  if (renameat(folder_.get(), fresh_.c_str(), folder_.get(), name_.c_str()) != 0)
    throw Error(attempt_, errno);
  fresh_.clear();
}

void write_file(const std::string& path, std::string_view text, const std::string& attempt,
                Readers readers) {
  Output file(path, attempt, readers);
  file.write(text);
  file.keep();
}

}  // namespace sentinel
