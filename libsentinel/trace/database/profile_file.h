// Where a profile is written, and how it comes to its place.
//
// SQLite opens a profile by its name, again and again, and believes what lies beside it. So it
// writes only where nobody else may exchange files: beside the place, or, where others have a hand
// in that folder, in a new folder of the user's own below $TMPDIR, from which the whole profile is
// copied to its place (base/output.h).
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace sentinel {

// How the name of such a folder begins; six characters follow.
constexpr std::string_view kProfileFolder = "sentinel-profile-";

enum class Comes {
  at_once,        // it can be read while it is written; what is killed leaves what it has
  when_finished,  // until then what was there before stays
};

// Throws Error where no profile can be written to that place: before hours of training.
void require_place(const std::string& place, const std::string& attempt);

class ProfileFile {
 public:
  // Makes an empty file. Throws Error, as all here do.
  ProfileFile(std::string place, Comes, std::string attempt);
  // What has not come to its place is removed; in a forked child nothing is.
  ~ProfileFile();
  ProfileFile(const ProfileFile&) = delete;
  ProfileFile& operator=(const ProfileFile&) = delete;

  const std::string& written() const { return written_; }  // for SQLite
  // It is a profile by now, without a record, and nobody has it open.
  void begin();
  // It is whole, and nobody has it open.
  void finish();
  bool comes_at_once() const { return comes_ == Comes::at_once; }

 private:
  void take_place();
  void copy_to_place();
  void remove_unfinished() noexcept;

  std::string place_, attempt_, written_;
  std::string folder_;  // of its own, where others have a hand in the place's
  Comes comes_;
  pid_t owner_;
};

}  // namespace sentinel
