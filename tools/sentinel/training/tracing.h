// Tracing a command: what `trace` and `fit` share.
#pragma once

#include <filesystem>
#include <string>

namespace sentinel::cli {

// While it lives, a command that runs is traced instead of trained. Its op times are estimates for
// the machine; "local" is measured by the command's own Python. Throws Error where there is no such
// machine, or its description has no rates. `tells`: of what the command does with values, which is
// the same in all traces of one command.
class TraceEnvironment {
 public:
  TraceEnvironment(const std::filesystem::path& output, const std::string& machine,
                   bool tells = true);
  ~TraceEnvironment();
  TraceEnvironment(const TraceEnvironment&) = delete;
  TraceEnvironment& operator=(const TraceEnvironment&) = delete;

 private:
  std::string mode_;  // before
  bool quiet_;
};

}  // namespace sentinel::cli
