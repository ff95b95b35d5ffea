// Reads the pinned and the locked bytes of this process from /proc/self/status.
#include "base/kept_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string_view>

namespace sentinel {
namespace {

std::uint64_t status_bytes(std::string_view field) noexcept {
  std::array<char, 4096> text;
  const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const auto count = read(file, text.data(), text.size() - 1);
  close(file);
  if (count <= 0) return 0;
  text[static_cast<std::size_t>(count)] = '\0';
  const std::string_view all(text.data(), static_cast<std::size_t>(count));
  const auto at = all.find(field);
  if (at == std::string_view::npos) return 0;
  return std::strtoull(text.data() + at + field.size(), nullptr, 10) * 1024;
}

}  // namespace

std::uint64_t pinned_bytes() noexcept { return status_bytes("\nVmPin:"); }
std::uint64_t locked_bytes() noexcept { return status_bytes("\nVmLck:"); }

}  // namespace sentinel
