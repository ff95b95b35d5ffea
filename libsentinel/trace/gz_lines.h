// Lines of a text file that may be compressed by gzip (told by its first bytes, not its name).
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/gz_input.h"

namespace sentinel {

class GzLines {
 public:
  explicit GzLines(const std::string& path);  // throws Error
  ~GzLines() { gzclose(file_); }
  GzLines(const GzLines&) = delete;
  GzLines& operator=(const GzLines&) = delete;

  // The next line without its end, valid until the next call; false at the end of the file.
  // Throws Error on a file cut off or damaged within its compression, and beyond the limits.
  bool next(std::string_view& line);
  std::size_t number() const { return number_; }  // of the line last given, from 1
  std::string place() const;                      // "file:12"

  static constexpr std::size_t max_line = std::size_t{4} << 20;
  static constexpr std::uint64_t max_bytes = std::uint64_t{4} << 30;  // packed, and unpacked
  static constexpr InputKind kTraces{"traces", max_bytes, "import one step of it"};

 private:
  bool fill();  // false at the end

  std::string path_, buffer_;
  gzFile file_;
  std::size_t begin_ = 0;  // of what is unread in buffer_
  std::size_t number_ = 0;
  std::uint64_t read_ = 0;
};

}  // namespace sentinel
