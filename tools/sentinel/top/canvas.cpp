// Keeps a glyph a cell, and writes runs of equal ink at once.
#include "top/canvas.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "report/text/text.h"

namespace sentinel::cli {
namespace {

const char* sequence_of(Ink ink) {
  switch (ink) {
    case Ink::plain:
      return "\x1b[0m";
    case Ink::bold:
      return "\x1b[0;1m";
    case Ink::dim:
      return "\x1b[0;38;5;248m";
    case Ink::held:
      return "\x1b[0;38;5;75m";
    case Ink::needed:
      return "\x1b[0;38;5;245m";
    case Ink::limit:
      return "\x1b[0;38;5;215m";
    case Ink::warning:
      return "\x1b[0;1;38;5;203m";
    case Ink::banner:
      return "\x1b[0;1;38;5;231;48;5;124m";
  }
  return "";
}

std::size_t glyph_bytes(std::string_view text) {
  std::size_t bytes = 1;
  while (bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) ++bytes;
  return bytes;
}

}  // namespace

Canvas::Canvas(std::size_t columns, std::size_t rows)
    : columns_(columns), rows_(rows), cells_(columns * rows) {}

std::size_t Canvas::put(std::size_t row, std::size_t column, std::string_view text, Ink ink) {
  const auto shown = printable(text);
  std::string_view rest = shown;
  while (!rest.empty()) {
    const auto bytes = glyph_bytes(rest);
    if (row < rows_ && column < columns_)
      cells_[row * columns_ + column] = {std::string(rest.substr(0, bytes)), ink};
    ++column;
    rest.remove_prefix(bytes);
  }
  return column;
}

void Canvas::put_right(std::size_t row, std::string_view text, Ink ink) {
  const auto width = columns_of(printable(text));
  put(row, columns_ - std::min(columns_, width), text, ink);
}

void Canvas::fill(std::size_t row, Ink ink) {
  if (row >= rows_) return;
  for (std::size_t column = 0; column < columns_; ++column)
    cells_[row * columns_ + column].ink = ink;
}

std::string Canvas::plain() const {
  std::string text;
  for (std::size_t row = 0; row < rows_; ++row) {
    std::string line;
    for (std::size_t column = 0; column < columns_; ++column)
      line += cells_[row * columns_ + column].glyph;
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  text.erase(text.find_last_not_of('\n') + 1);
  return text + "\n";
}

std::string Canvas::painted() const {
  std::string text;
  auto ink = Ink::plain;
  for (std::size_t row = 0; row < rows_; ++row) {
    text += fmt::format("\x1b[{};1H\x1b[0m", row + 1);
    ink = Ink::plain;
    for (std::size_t column = 0; column < columns_; ++column) {
      const auto& cell = cells_[row * columns_ + column];
      if (cell.ink != ink) text += sequence_of(ink = cell.ink);
      text += cell.glyph;
    }
  }
  return text + "\x1b[0m";
}

}  // namespace sentinel::cli
