// Files that `-o` names, which may stand for several: %p is a process id, %r a rank.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

namespace sentinel::cli {

// Those that exist, each with what changes when it is written.
using Files = std::map<std::string, std::pair<ino_t, std::int64_t>>;
Files files_of(const std::filesystem::path& pattern);

// Whether it belongs to this user, behind a link of this user's or root's: others may put a file at
// a name too.
bool is_own(const std::filesystem::path&);

// Before hours of training rather than after them. Throws Error where a profile could not be
// written there, or something that is none would be lost.
void require_writable_profile(const std::filesystem::path& pattern);

}  // namespace sentinel::cli
