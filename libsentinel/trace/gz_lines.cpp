#include "trace/gz_lines.h"

#include <fmt/format.h>

#include <cerrno>

#include "base/input.h"
#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::size_t chunk = 256 << 10;
constexpr InputKind kTraces{"traces", GzLines::max_bytes, "import one step of it"};

}  // namespace

gzFile open_gz(const std::string& path, const std::string& attempt) {
  auto input = open_input(path, attempt, kTraces);
  const gzFile file = gzdopen(input.get(), "rb");
  if (file == nullptr) throw Error(attempt, ENOMEM);
  input.release();
  return file;
}

GzLines::GzLines(const std::string& path) : path_(path) {
  const std::string attempt = fmt::format("cannot read trace {}", path);
  file_ = open_gz(path, attempt);
  gzbuffer(file_, chunk);
}

std::string GzLines::place() const { return fmt::format("{}:{}", path_, number_); }

bool GzLines::fill() {
  buffer_.erase(0, begin_);
  begin_ = 0;
  const std::size_t had = buffer_.size();
  buffer_.resize(had + chunk);
  const int got = gzread(file_, buffer_.data() + had, chunk);
  int error = Z_OK;
  gzerror(file_, &error);
  // Z_BUF_ERROR: the compressed stream stops before its end.
  if (got < 0 || error == Z_BUF_ERROR)
    throw Error(fmt::format("{}: the file is {} here; copy it again", place(),
                            error == Z_BUF_ERROR ? "truncated" : "damaged"),
                error == Z_ERRNO ? errno : 0);
  buffer_.resize(had + static_cast<std::size_t>(got));
  read_ += static_cast<std::uint64_t>(got);
  if (read_ > max_bytes)
    throw Error(fmt::format("{}: the trace has over {} unpacked; {}", place(),
                            print_bytes(max_bytes), kTraces.advice));
  if (read_ > always_unpacked + max_ratio * static_cast<std::uint64_t>(gzoffset(file_)))
    throw Error(
        fmt::format("{}: the trace unpacks to over {} times its length; if it is one, "
                    "unpack it with gunzip first",
                    place(), max_ratio));
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
