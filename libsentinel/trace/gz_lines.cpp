// Reads lines through zlib, each within a limit.
#include "trace/gz_lines.h"

#include <fmt/format.h>

#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::size_t chunk = 256 << 10;

}  // namespace

GzLines::GzLines(const std::string& path) : path_(path) {
  const std::string attempt = fmt::format("cannot read trace {}", path);
  file_ = open_gz(path, attempt, GzLines::kTraces);
}

std::string GzLines::place() const { return fmt::format("{}:{}", path_, number_); }

bool GzLines::fill() {
  buffer_.erase(0, begin_);
  begin_ = 0;
  const std::size_t had = buffer_.size();
  buffer_.resize(had + chunk);
  const auto got = read_gz(file_, buffer_.data() + had, chunk, read_, place(), GzLines::kTraces);
  buffer_.resize(had + got);
  return got > 0;
}

bool GzLines::next(std::string_view& line) {
  std::size_t searched = 0;  // of the unread part: a long line is searched once, not once a chunk
  ++number_;
  for (;;) {
    const std::size_t end = buffer_.find('\n', begin_ + searched);
    const std::size_t length = (end == std::string::npos ? buffer_.size() : end) - begin_;
    if (length > max_line) throw Error(place() + ": the line is over 4 MiB long");
    searched = length;
    if (end == std::string::npos && fill()) continue;
    line = std::string_view(buffer_).substr(begin_, length);
    begin_ += length + (end == std::string::npos ? 0 : 1);
    return end != std::string::npos || length > 0;
  }
}

}  // namespace sentinel
