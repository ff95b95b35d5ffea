// Prints lines to stderr, and ends a training that is refused.
#include "runtime/limit/voice.h"

#include <unistd.h>

#include <cstdio>

#include "base/failure.h"
#include "base/text.h"

namespace sentinel {

void Voice::say(const std::string& text) const {
  if (!quiet_) std::fprintf(stderr, "sentinel: %s\n", printable(text).c_str());
}

void refuse(const std::exception& error) {
  std::fprintf(stderr, "sentinel: %s\n", in_words(error).c_str());
  // A thread that holds a stream's lock may wait for memory that never comes.
  for (auto* stream : {stdout, stderr})
    if (ftrylockfile(stream) == 0) {
      fflush_unlocked(stream);
      funlockfile(stream);
    }
  _exit(125);
}

}  // namespace sentinel
