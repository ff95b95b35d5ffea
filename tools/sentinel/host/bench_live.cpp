// Starts tests/bench/live with the options that `sentinel bench --live` was given.
#include "host/bench_live.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "sentinel/error.h"
#include "training/launch.h"

namespace sentinel::cli {

int bench_live(const std::string& slow, const std::vector<std::string>& arguments) {
  namespace fs = std::filesystem;
  const fs::path script = fs::path(SENTINEL_SOURCES) / "tests/bench/live/live.py";
  if (!fs::exists(script))
    throw Error(
        fmt::format("{} is not there: --live trains the models of the source tree; build the "
                    "command from one that stays",
                    script.string()));
  if (slow.find(',') != slow.npos)
    throw Error(fmt::format("--live compares on one disk; --slow {} names several", slow));
  const fs::path build = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  const char* python = std::getenv("SENTINEL_PYTHON");
  std::vector<std::string> command{
      python != nullptr && *python != '\0' ? python : "/usr/bin/python3",
      script.string(),
      "--build",
      build.string(),
      "--disk",
      slow};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_command(command);
}

}  // namespace sentinel::cli
