// Files that somebody names for reading: profiles, traces, plans, snapshots, machine descriptions.
//
// Only a regular file is read. A pipe would keep its reader until somebody writes, a device may
// never end, and opening one can already do something. A symbolic link is followed: the user named
// it. Each kind of file has a largest size, so that a wrong one is refused before memory is filled.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "base/descriptor.h"

namespace sentinel {

struct InputKind {
  const char* plural;   // "plans"
  std::uint64_t bytes;  // of the largest
  const char* advice;   // what to do about a larger one
};

// All throw Error. `attempt` begins its text: "cannot read plan p.json".
void require_input(const struct stat&, const std::string& attempt, const InputKind&);
Descriptor open_input(const std::string& path, const std::string& attempt, const InputKind&);
std::string read_input(const std::string& path, const std::string& attempt, const InputKind&);
std::string read_rest(const Descriptor&, const std::string& attempt, const InputKind&);

}  // namespace sentinel
