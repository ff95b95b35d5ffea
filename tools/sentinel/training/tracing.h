// Tracing a command: what `trace` and `fit` share.
#pragma once

#include <filesystem>
#include <string>

namespace sentinel::cli {

// While it lives, a command that runs is traced instead of trained. Its op times are estimates for
// the machine; "local" is measured by the command's own Python. Throws Error where there is no such
// machine, or its description has no rates.
class TraceEnvironment {
 public:
  TraceEnvironment(const std::filesystem::path& output, const std::string& machine);
  ~TraceEnvironment();
  TraceEnvironment(const TraceEnvironment&) = delete;
  TraceEnvironment& operator=(const TraceEnvironment&) = delete;

 private:
  std::string mode_;  // before
};

}  // namespace sentinel::cli
