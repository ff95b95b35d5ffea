// Text for a terminal: columns aligned by what the eye sees (code points, not bytes), colours only
// where wanted. Names are made harmless by printable(), of base/text.h.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace sentinel {

std::size_t columns_of(std::string_view text);  // code points
// With '~' for what is cut from the middle: names begin with a layer and end with an op.
std::string clip(std::string_view text, std::size_t columns);
std::string pad(std::string_view text, std::size_t columns);   // on the right
std::string lead(std::string_view text, std::size_t columns);  // on the left
// Lines of at most `columns`, broken at blanks; a longer word stands alone.
std::vector<std::string> wrapped(std::string_view text, std::size_t columns);
std::string bold(std::string_view text, bool colour);

enum class Align : std::uint8_t { left, right };

// Rows of cells, printed with two spaces between columns and no blanks at a line's end.
class Grid {
 public:
  explicit Grid(std::vector<Align> columns) : align_(std::move(columns)) {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void rule() { rows_.emplace_back(); }  // a line of dashes
  // Where a row is wider than `width`, the first column is cut (to 12 columns at least).
  void print(std::ostream& out, std::size_t indent, std::size_t width) const;

 private:
  std::vector<std::size_t> widths(std::size_t indent, std::size_t width) const;
  std::vector<Align> align_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace sentinel
