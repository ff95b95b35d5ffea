// SQLite's files beside a profile: FILE-wal and FILE-shm of one that is being written, FILE-journal
// of one whose writer was killed as it finished.
//
// SQLite takes them by name alone. Whoever may put a file beside a profile, as in /tmp, could
// change the profile by a journal, and a journal can name one more file, which SQLite removes. So
// only files of the profile's owner count, and a writer makes them before SQLite looks for them.
#pragma once

#include <sys/stat.h>

#include <string>

namespace sentinel {

struct SideFiles {
  bool wal = false, journal = false;  // journal: with something in it
  bool any() const { return wal || journal; }
};

// Of `profile`, which lies at `file`. Others' files do not count. Throws Error that begins with
// `attempt` where those that do cannot be handed to SQLite.
SideFiles side_files(const std::string& file, const struct stat& profile,
                     const std::string& attempt);

// Throws Error where the name is so long that those beside it could not be made.
void require_room_for_side_files(const std::string& file, const std::string& attempt);

// Makes them anew, empty and the user's own. Throws Error.
void claim_side_files(const std::string& file, const std::string& attempt);
void remove_side_files(const std::string& file, const std::string& attempt);

}  // namespace sentinel
