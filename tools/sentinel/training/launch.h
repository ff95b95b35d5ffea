// What `run` and `record` have in common: options that become the environment of options/table.h,
// the command in the foreground, and the framework's way to the library.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "cli/form.h"
#include "options/options.h"

namespace sentinel::cli {

struct Launch {
  Mode mode = Mode::none;
  std::map<std::string, std::string> values;  // by variable, as the user wrote them
  std::map<std::string, bool> flags;
  std::vector<std::string> command;
  Descriptor broker;  // which stays while the command runs

  bool given(const std::string& variable) const;
};

// The rows that the mode has; their targets lie in `launch`.
std::vector<Row> launch_rows(Launch& launch);

// Has Python load what goes into it, which lies beside the command, built or installed. A part of
// what follows.
void enter_places();

// Puts everything into this process's environment, which the command inherits: paths absolute, for
// the command may change its directory. Throws UsageError on values that the library would refuse.
SessionOptions enter_environment(const Launch&);

// Of `run`: enters the environment, checks what can be checked before the command starts, and
// measures the machine where that has not been done. Throws UsageError, Error.
void prepare_run(Launch&);

// Runs the command in the foreground; its status as a shell tells it.
int run_command(const std::vector<std::string>& command);

}  // namespace sentinel::cli
