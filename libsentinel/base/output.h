// Files that are written: all of a file comes into its place at once, or none of it.
//
// A file is made under a name that nobody can foresee, beside its place, in the folder that was
// opened for it, and renamed within that folder. Nothing that another user has put at its place is
// replaced, and no link of another user's is followed, wherever in the path it stands: in /tmp, or
// in a folder of theirs, it could lead to any file of the user's. A link of the user's own or
// root's leads to its target; a device or a pipe is written to.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/descriptor.h"

namespace sentinel {

// The file behind `path`, with the user's own links followed. Throws Error that begins with
// `attempt` where another user's file or link stands there.
std::string output_place(const std::string& path, const std::string& attempt);

// The name under which the file `name` is made, unlike any other; and the process that makes the
// file of such a name, none where the name is another's.
std::string unfinished_name(std::string_view name);
std::optional<int> writer_of(std::string_view unfinished);

enum class Readers { owner, everybody };  // mode 0600, or what the umask (or an older file) has

class Output {
 public:
  // Throws Error, as all here do; `attempt` begins its text: "cannot write plan p.json".
  Output(const std::string& path, std::string attempt, Readers);
  Output(Descriptor folder, std::string name, std::string attempt, Readers);
  ~Output();  // what was not kept is removed
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  int fd() const { return file_.get(); }
  void write(std::string_view);
  void keep();

 private:
  void make(Readers);
  void open_directly(const std::string& place);

  std::string attempt_, name_, fresh_;  // fresh_: empty for a device or a pipe, and once kept
  Descriptor folder_, file_;
};

void write_file(const std::string& path, std::string_view text, const std::string& attempt,
                Readers);

}  // namespace sentinel
