// For a verb with an answer of its own, around a command that it runs. Throws Error.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "sentinel/error.h"

namespace sentinel::cli {

// stdout is for the answer: what the command prints goes to stderr.
class StdoutAside {
 public:
  StdoutAside() : kept_(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)) {
    if (kept_ < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
      throw Error("could not set stdout aside", errno);
  }
  ~StdoutAside() {
    dup2(kept_, STDOUT_FILENO);
    close(kept_);
  }
  StdoutAside(const StdoutAside&) = delete;
  StdoutAside& operator=(const StdoutAside&) = delete;

 private:
  int kept_;
};

}  // namespace sentinel::cli
