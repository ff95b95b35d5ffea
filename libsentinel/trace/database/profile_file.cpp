// Writes a profile in a private folder, and moves the whole file into its place.
#include "trace/database/profile_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/descriptor.h"
#include "base/folder.h"
#include "base/input.h"
#include "base/output.h"
#include "base/units.h"
#include "sentinel/error.h"
#include "trace/database/side_files.h"

namespace sentinel {
namespace {

namespace fs = std::filesystem;

constexpr InputKind kOwn{"profiles", 1024 * 1_GiB, "record a shorter step"};

// With SQLite's files beside it: nobody can put others there.
void create_private(const std::string& path, const std::string& attempt) {
  if (unlink(path.c_str()) != 0 && errno != ENOENT)
    throw Error(fmt::format("{} is in the way", path), errno);
  claim_side_files(path, attempt);
  const Descriptor made(
      open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!made || fchmod(made.get(), 0600) != 0) throw Error(attempt, errno);
}

fs::path temporary_folder(const std::string& attempt) {
  std::error_code wrong;
  auto above = fs::temp_directory_path(wrong);
  if (!wrong) above = fs::absolute(above, wrong);
  if (wrong)
    throw Error(attempt + ": TMPDIR names no folder; name one of your own with it", wrong.value());
  if (const auto hand = other_hand_at(above / "x", S_IWOTH))
    throw Error(
        fmt::format("{}: {} is no place for what comes: {}; name a folder of your own with TMPDIR",
                    attempt, hand->folder, print_hand(*hand)));
  return above;
}

std::string make_folder(const std::string& attempt) {
  auto name = (temporary_folder(attempt) / kProfileFolder).string() + "XXXXXX";
  if (mkdtemp(name.data()) == nullptr) throw Error(attempt + ": " + name, errno);
  return name;
}

}  // namespace

void require_place(const std::string& place, const std::string& attempt) {
  require_room_for_side_files(place, attempt);
  if (other_hand_at(place, S_IWOTH)) temporary_folder(attempt);
}

ProfileFile::ProfileFile(std::string place, Comes comes, std::string attempt)
    : place_(std::move(place)), attempt_(std::move(attempt)), comes_(comes), owner_(getpid()) {
  const auto split = place_.rfind('/') + 1;
  const auto name = unfinished_name(place_.substr(split));
  if (other_hand_at(place_, S_IWOTH)) folder_ = make_folder(attempt_);
  written_ = folder_.empty() ? place_.substr(0, split) + name : folder_ + "/" + name;
  try {
    create_private(written_, attempt_);
  } catch (const Error&) {
    remove_unfinished();
    throw;
  }
}

ProfileFile::~ProfileFile() {
  if (getpid() == owner_ && written_ != place_) remove_unfinished();
}

void ProfileFile::remove_unfinished() noexcept {
  if (std::error_code none; !folder_.empty()) {
    fs::remove_all(folder_, none);
  } else {
    unlink(written_.c_str());
    try {
      remove_side_files(written_, attempt_);
    } catch (const Error&) {  // `sentinel clean` knows their names
    }
  }
}

void ProfileFile::begin() {
  if (comes_ == Comes::at_once && folder_.empty()) take_place();
}

void ProfileFile::finish() {
  if (written_ == place_) return;
  folder_.empty() ? take_place() : copy_to_place();
}

// A kill leaves either what was there before or a profile, and never a journal that only a writer
// can apply.
void ProfileFile::take_place() {
  remove_side_files(written_, attempt_);
  comes_ == Comes::at_once ? claim_side_files(place_, attempt_)
                           : remove_side_files(place_, attempt_);
  if (rename(written_.c_str(), place_.c_str()) != 0) throw Error(attempt_, errno);
  written_ = place_;
}

void ProfileFile::copy_to_place() try {
  write_file(place_, read_input(written_, attempt_, kOwn), attempt_, Readers::owner);
  std::error_code none;
  fs::remove_all(folder_, none);
  written_ = place_;
} catch (const Error& error) {
  const auto whole = std::exchange(written_, place_);  // kept
  throw Error(fmt::format("{} (the profile is {})", error.what(), whole), 0);
}

}  // namespace sentinel
