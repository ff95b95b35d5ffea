// Finds and removes SQLite's files beside a profile, where they are the user's own.
#include "trace/database/side_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <string_view>

#include "base/descriptor.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr const char* kWal = "-wal";
constexpr const char* kShared = "-shm";
constexpr const char* kJournal = "-journal";

// Whether it is a regular file of the profile's owner and has no other name.
bool belongs(const std::string& path, const struct stat& profile, struct stat& found) {
  return lstat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) &&
         found.st_uid == profile.st_uid && found.st_nlink == 1;
}

// A journal that names one more file ends with these bytes (SQLite's file format, 3).
bool names_another_file(const std::string& journal) {
  constexpr std::string_view kEnd = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
  const Descriptor file(open(journal.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat found {};
  std::array<char, kEnd.size()> end{};
  if (!file || fstat(file.get(), &found) != 0) return true;
  const auto at = found.st_size - static_cast<off_t>(end.size());
  return at >= 0 && (pread(file.get(), end.data(), end.size(), at) != end.size() ||
                     std::string_view(end.data(), end.size()) == kEnd);
}

}  // namespace

SideFiles side_files(const std::string& file, const struct stat& profile,
                     const std::string& attempt) {
  struct stat found {};
  SideFiles beside;
  beside.wal = belongs(file + kWal, profile, found);
  beside.journal = belongs(file + kJournal, profile, found) && found.st_size > 0;
  if (!beside.any()) return beside;
  if (profile.st_uid != geteuid())
    throw Error(
        fmt::format("{}: user {} is recording it, or the recording was killed; read it as "
                    "that user, or copy it and its -wal file to a folder of your own",
                    attempt, profile.st_uid));
  if (beside.journal && names_another_file(file + kJournal))
    throw Error(fmt::format("{}: {}{} is no journal of a recording; remove that file", attempt,
                            file, kJournal));
  // SQLite looks at all three once it may write, and goes by a journal whoever has put it there.
  for (const auto* suffix : {kWal, kShared, kJournal})
    if (!belongs(file + suffix, profile, found) && lstat((file + suffix).c_str(), &found) == 0)
      throw Error(
          fmt::format("{}: {}{} is not a file of the profile's owner alone (user {} has "
                      "it); remove that file",
                      attempt, file, suffix, found.st_uid));
  return beside;
}

void require_room_for_side_files(const std::string& file, const std::string& attempt) {
  const auto longest = NAME_MAX - std::string_view(kJournal).size();
  const auto name = file.size() - (file.rfind('/') + 1);
  if (name > longest)
    throw Error(
        fmt::format("{}: its name has {} bytes, and those of profiles have at most {}; "
                    "choose a shorter one",
                    attempt, name, longest));
}

void remove_side_files(const std::string& file, const std::string& attempt) {
  for (const auto* suffix : {kWal, kShared, kJournal})
    if (unlink((file + suffix).c_str()) != 0 && errno != ENOENT)
      throw Error(fmt::format("{}: {}{} is in the way", attempt, file, suffix), errno);
}

void claim_side_files(const std::string& file, const std::string& attempt) {
  remove_side_files(file, attempt);
  for (const auto* suffix : {kWal, kShared, kJournal}) {
    const Descriptor made(
        open((file + suffix).c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!made || fchmod(made.get(), 0600) != 0)
      throw Error(fmt::format("{}: {}{} is in the way", attempt, file, suffix), errno);
  }
}

}  // namespace sentinel
