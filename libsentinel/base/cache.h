// The user's cache: $XDG_CACHE_HOME/sentinel, else .cache/sentinel in $HOME, else in the home that
// the passwd entry names. It keeps what was measured of this machine and the adaptors that were
// compiled, which are code.
//
// What is in the cache is believed, so nobody else may write there. The folder must be the user's
// own; its parents must be the user's or root's, and no others may write to them, up to one with
// the sticky bit. A folder that fails this is not used at all, and the error says what to do. What
// is in it is reached through the folder's descriptor and must be the user's own as well.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/descriptor.h"

namespace sentinel::cache {

std::string place();  // for people to read; empty where no home is known

enum class Absent { make, leave };
// Throws Error; of code ENOENT where there is no folder and Absent::leave.
Descriptor open_folder(Absent);

// Of a file in the cache. Throw Error; of code ENOENT where there is none.
std::string read(const std::string& name, const std::string& attempt);
void write(const std::string& name, std::string_view text, const std::string& attempt);

// A library to be loaded through /proc/self/fd, so that what was looked at is what is loaded: the
// user's or root's, written by nobody else. Throws Error; of code ENOENT where there is none.
Descriptor open_library(int folder, const std::string& name);

}  // namespace sentinel::cache
