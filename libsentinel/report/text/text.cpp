// Aligns, clips, wraps and colours text by the columns that the eye sees.
#include "report/text/text.h"

#include <algorithm>
#include <ostream>

namespace sentinel {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

std::size_t columns_of(std::string_view text) {
  return text.size() - static_cast<std::size_t>(std::ranges::count_if(text, continues));
}

namespace {

std::size_t byte_of(std::string_view text, std::size_t column) {
  std::size_t at = 0;
  for (std::size_t seen = 0; at < text.size(); ++at)
    if (!continues(text[at]) && seen++ == column) break;
  return at;
}

}  // namespace

std::string clip(std::string_view text, std::size_t columns) {
  const auto have = columns_of(text);
  if (have <= columns) return std::string(text);
  if (columns == 0) return "";
  const auto begin = (columns - 1) / 2, end = columns - 1 - begin;
  return std::string(text.substr(0, byte_of(text, begin))) + "~" +
         std::string(text.substr(byte_of(text, have - end)));
}

std::string pad(std::string_view text, std::size_t columns) {
  const auto have = columns_of(text);
  return std::string(text) + std::string(columns > have ? columns - have : 0, ' ');
}

std::string lead(std::string_view text, std::size_t columns) {
  const auto have = columns_of(text);
  return std::string(columns > have ? columns - have : 0, ' ') + std::string(text);
}

std::vector<std::string> wrapped(std::string_view text, std::size_t columns) {
  std::vector<std::string> lines{""};
  while (!text.empty()) {
    const auto word = text.substr(0, text.find(' '));
    auto& line = lines.back();
    if (!line.empty() && columns_of(line) + 1 + columns_of(word) > columns)
      lines.emplace_back(word);
    else
      line += (line.empty() ? "" : " ") + std::string(word);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return lines;
}

std::string bold(std::string_view text, bool colour) {
  return colour ? "\x1b[1m" + std::string(text) + "\x1b[0m" : std::string(text);
}

std::vector<std::size_t> Grid::widths(std::size_t indent, std::size_t width) const {
  std::vector<std::size_t> widest(align_.size());
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i)
      widest[i] = std::max(widest[i], columns_of(row[i]));
  auto total = indent;
  for (const auto w : widest) total += w + 2;
  total -= widest.empty() ? 0 : 2;
  if (total > width && !widest.empty()) {
    const auto over = total - width;
    widest[0] =
        std::max(std::min<std::size_t>(widest[0], 12), widest[0] - std::min(over, widest[0]));
  }
  return widest;
}

void Grid::print(std::ostream& out, std::size_t indent, std::size_t width) const {
  const auto wide = widths(indent, width);
  for (const auto& row : rows_) {
    std::string line(indent, ' ');
    for (std::size_t i = 0; i < wide.size(); ++i) {
      const auto cell =
          row.empty() ? std::string(wide[i], '-') : clip(i < row.size() ? row[i] : "", wide[i]);
      const std::string gap(wide[i] - columns_of(cell), ' ');
      line += (i ? "  " : "") + (align_[i] == Align::right ? gap + cell : cell + gap);
    }
    out << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
}

}  // namespace sentinel
