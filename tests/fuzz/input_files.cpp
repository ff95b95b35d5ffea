#include "fuzz/input_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace sentinel::fuzz {
namespace {

namespace fs = std::filesystem;

void put(int file, std::string_view bytes) {
  if (file < 0 || write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    throw std::runtime_error("no file for the reader");
}

class Folder {
 public:
  Folder() {
    auto name = (fs::temp_directory_path() / "sentinel-fuzz-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the reader");
    path_ = name;
  }
  ~Folder() {
    std::error_code none;
    if (getpid() == owner_) fs::remove_all(path_, none);
  }
  std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
  pid_t owner_ = getpid();
};

const Folder& folder() {
  static const Folder made;
  return made;
}

}  // namespace

MemoryFile::MemoryFile(std::string_view bytes) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
  put(fd_, bytes);
}

MemoryFile::~MemoryFile() { close(fd_); }

std::string named_file(std::string_view bytes) {
  auto path = folder().file("input");
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  put(file, bytes);
  close(file);
  return path;
}

std::string fresh_path() {
  auto path = folder().file("fresh");
  fs::remove(path);
  return path;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace sentinel::fuzz
