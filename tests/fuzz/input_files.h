// Bytes as a file, for readers that take a path.
#pragma once

#include <string>
#include <string_view>

namespace sentinel::fuzz {

// It lies in memory only.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// For readers that follow no link: a file of the user's own, in a folder of this process. The next
// call replaces it, and the process removes the folder when it ends.
std::string named_file(std::string_view bytes);

// The path of a file that is not there, in the same folder; and the bytes of one that is.
std::string fresh_path();
std::string bytes_of(const std::string& path);

}  // namespace sentinel::fuzz
