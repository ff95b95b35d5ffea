// Reads what sessions publish. Folders and files are the user's own; root reads anybody's in the
// folder that SENTINEL_STATUS names. A file may still be anything: torn, cut, of another version,
// or made to harm. It is copied by read() (a mapping that somebody cuts would end the reader),
// looked at only once it is whole, and no number in it is followed further than its array goes.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "runtime/status/status.h"

namespace sentinel {

class StatusReader {
 public:
  enum class Found {
    status,      // `status` is of one moment
    unfinished,  // the session has not written it yet, or was ended while it wrote
    other_version,
    no_status,  // this is no file of a session
  };

  // Throws Error where the file cannot be read.
  explicit StatusReader(const std::string& path);

  // Reads it anew. The status before stays where this one is unfinished.
  Found read();
  const Status& status() const { return status_; }
  std::uint32_t version() const { return version_; }  // as the file says
  // The process that publishes, from the kernel; none: it has ended.
  std::optional<pid_t> writer() const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Descriptor file_;
  Status status_{};
  std::uint32_t version_ = 0;
};

// Files of the folders that a living process publishes in, in the order of their numbers.
struct StatusFile {
  pid_t process = 0;
  std::string path;
};
std::vector<StatusFile> running_sessions();
// A sentence each: folders in which running_sessions() looks at nothing, and why.
std::vector<std::string> folders_passed_over();

}  // namespace sentinel
