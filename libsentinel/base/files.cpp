// Reads the first line of a small file.
#include "base/files.h"

#include <fstream>

namespace sentinel {

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace sentinel
