#include "base/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "sentinel/error.h"

namespace sentinel {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as the kernel has it
constexpr mode_t kPermissions = 0777;

fs::path folder_of(const fs::path& path) {
  const auto folder = path.parent_path();
  return folder.empty() ? "." : folder;
}

// The kernel's own rule for links in folders that everybody writes to (fs.protected_symlinks), here
// in all folders and for files and pipes too.
void require_trusted(const fs::path& path, const struct stat& found, const std::string& attempt) {
  struct stat folder {};
  if (found.st_uid == geteuid() || found.st_uid == 0) return;
  if (stat(folder_of(path).c_str(), &folder) == 0 && folder.st_uid == found.st_uid) return;
  throw Error(fmt::format("{}: {} belongs to user {}; name another file, or remove that one first",
                          attempt, path.string(), found.st_uid));
}

// Of /dev/stdout, too: a pipe or a device has no other name.
bool leads_to_no_file(const struct stat& end) { return !S_ISREG(end.st_mode); }

std::uint32_t random_number() {
  std::uint32_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) throw Error("no random number", errno);
  return number;
}

}  // namespace

std::string output_place(const std::string& path, const std::string& attempt) {
  struct stat end {
  }, found{};
  const bool exists = stat(path.c_str(), &end) == 0;
  fs::path place = path;
  for (int links = 0; lstat(place.c_str(), &found) == 0; ++links) {
    require_trusted(place, found, attempt);
    if (!S_ISLNK(found.st_mode)) break;
    if (links == kMostLinks) throw Error(attempt, ELOOP);
    if (exists && leads_to_no_file(end)) return place;
    std::error_code failed;
    place = folder_of(place) / fs::read_symlink(place, failed);
    if (failed) throw Error(attempt, failed.value());
    found = {};
  }
  // /proc/self/fd/1 may lead to a file whose name is gone.
  if (exists && (found.st_ino != end.st_ino || found.st_dev != end.st_dev))
    throw Error(fmt::format("{}: the file that {} leads to has no name", attempt, path), ENOENT);
  return place;
}

Output::Output(const std::string& path, std::string attempt, Readers readers)
    : attempt_(std::move(attempt)) {
  const fs::path place = output_place(path, attempt_);
  struct stat found {};
  const bool exists = stat(place.c_str(), &found) == 0;
  if (exists && S_ISDIR(found.st_mode)) throw Error(attempt_, EISDIR);
  if (exists && !S_ISREG(found.st_mode)) {
    open_directly(place);
    return;
  }
  name_ = place.filename();
  folder_ = Descriptor(open(folder_of(place).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder_) throw Error(attempt_, errno);
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
  constexpr std::size_t kLongestBeginning = 200;  // of the 255 bytes of a name
  constexpr int kTries = 100;
  const mode_t mode = readers == Readers::owner ? 0600 : 0666;
  for (int tries = 0; tries < kTries && !file_; ++tries) {
    auto fresh = fmt::format("{}.{:08x}.{}.tmp", name_.substr(0, kLongestBeginning),
                             random_number(), getpid());
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
