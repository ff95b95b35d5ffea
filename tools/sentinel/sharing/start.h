// Brokers that `sentinel run` starts: one for the user where none listens, and one for the ranks of
// its own command.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "options/options.h"

namespace sentinel::cli {

// Throws Error where no broker listens and none can be started.
void ensure_broker(const SessionOptions&);

// A broker of a command's ranks, for as long as this lives.
class RanksBroker {
 public:
  explicit RanksBroker(std::uint64_t total);  // throws Error
  ~RanksBroker();
  RanksBroker(const RanksBroker&) = delete;
  RanksBroker& operator=(const RanksBroker&) = delete;

 private:
  std::string folder_;
  pid_t process_ = -1;
};

// Where --fast names bytes and no broker is named: ranks of a launcher share them. It enters the
// environment.
std::unique_ptr<RanksBroker> divide_among_ranks(const SessionOptions&);

}  // namespace sentinel::cli
