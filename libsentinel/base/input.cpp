// Opens a named file, refuses what is no regular file or pipe, and reads it within a limit.
#include "base/input.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

const char* what_is(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFIFO:
      return "it is a pipe, not a regular file; write what it gives to a file and name that";
    case S_IFSOCK:
      return "it is a socket, not a regular file";
    default:
      return "it is a device, not a regular file";
  }
}

[[noreturn]] void too_large(std::uint64_t bytes, const std::string& attempt,
                            const InputKind& kind) {
  throw Error(fmt::format("{}: it has {}, and {} have at most {}; {}", attempt, print_bytes(bytes),
                          kind.plural, print_bytes(kind.bytes), kind.advice));
}

}  // namespace

void require_input(const struct stat& found, const std::string& attempt, const InputKind& kind) {
  if (S_ISDIR(found.st_mode)) throw Error(attempt + ": name the file, not its folder", EISDIR);
  if (!S_ISREG(found.st_mode)) throw Error(fmt::format("{}: {}", attempt, what_is(found.st_mode)));
  const auto bytes = static_cast<std::uint64_t>(found.st_size);
  if (bytes > kind.bytes) too_large(bytes, attempt, kind);
}

// Looked at before it is opened, as opening a device may do something, and again once it is open,
// as another file may have come into its place.
Descriptor open_input(const std::string& path, const std::string& attempt, const InputKind& kind) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) throw Error(attempt, errno);
  require_input(found, attempt, kind);
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file || fstat(file.get(), &found) != 0) throw Error(attempt, errno);
  require_input(found, attempt, kind);
  return file;
}

// A file that grows meanwhile is read up to the largest size.
std::string read_rest(const Descriptor& file, const std::string& attempt, const InputKind& kind) {
  constexpr std::size_t kChunk = 1 << 20;
  std::string bytes;
  struct stat found {};
  if (fstat(file.get(), &found) == 0) bytes.reserve(static_cast<std::size_t>(found.st_size) + 1);
  for (;;) {
    const auto had = bytes.size();
    bytes.resize(had + std::max<std::size_t>(1, std::min(kChunk, bytes.capacity() - had)));
    const auto got = read(file.get(), bytes.data() + had, bytes.size() - had);
    bytes.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(attempt, errno);
    if (got == 0) return bytes;
    if (bytes.size() > kind.bytes) too_large(bytes.size(), attempt, kind);
  }
}

std::string read_input(const std::string& path, const std::string& attempt, const InputKind& kind) {
  return read_rest(open_input(path, attempt, kind), attempt, kind);
}

}  // namespace sentinel
