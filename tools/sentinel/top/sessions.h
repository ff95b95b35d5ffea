// The sessions that `sentinel top` shows: those that run, and those that have run while it looked.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/status/status_reader.h"

namespace sentinel::cli {

struct Session {
  enum class Life { begins, runs, over, died, other_version };
  pid_t process = 0;
  Life life = Life::begins;
  Status status{};            // the last that could be read
  std::uint32_t version = 0;  // of the status, where it is another one
};

class Sessions {
 public:
  // All, or those of that process and of the processes below it.
  explicit Sessions(std::optional<pid_t> process) : process_(process) {}

  // Looks anew. In the order in which they were found; of those that have ended only the last stay.
  const std::vector<Session>& look();

 private:
  struct Watched {
    Session session;
    StatusReader reader;
  };
  bool wanted(pid_t) const;
  void find();

  std::optional<pid_t> process_;
  std::vector<std::unique_ptr<Watched>> watched_;
  std::vector<Session> sessions_;
};

}  // namespace sentinel::cli
