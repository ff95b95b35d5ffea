// A folder of this process's own among temporary files, whose name nobody can foresee.
#pragma once

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "sentinel/error.h"

namespace sentinel::cli {

// Removed with all that is in it. Throws Error.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& verb) {
    const auto above = std::filesystem::temp_directory_path();
    auto pattern = (above / fmt::format("sentinel-{}-XXXXXX", verb)).string();
    if (mkdtemp(pattern.data()) == nullptr)
      throw Error(fmt::format("cannot make a folder in {}", above.string()), errno);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace sentinel::cli
