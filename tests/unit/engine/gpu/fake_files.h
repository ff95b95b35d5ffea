// What cuFile registers, by its reference: no file that never had a name, or has none any more.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

namespace fake {

constexpr int kInvalidFileType = 5018, kInvalidFileOpenFlag = 5019;

// 0: it does; else cuFile's error.
inline int refusal(int descriptor) {
  const int flags = fcntl(descriptor, F_GETFL);
  if (flags < 0 || (flags & O_TMPFILE) == O_TMPFILE) return kInvalidFileOpenFlag;
  struct stat found {};
  return fstat(descriptor, &found) == 0 && found.st_nlink > 0 ? 0 : kInvalidFileType;
}

}  // namespace fake
