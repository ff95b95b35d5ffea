// A screen of fixed size, cell by cell: what does not fit is cut, and nothing wraps or scrolls.
// Knows no terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sentinel::cli {

enum class Ink : std::uint8_t { plain, bold, dim, held, needed, limit, warning, banner };

class Canvas {
 public:
  Canvas(std::size_t columns, std::size_t rows);
  std::size_t columns() const { return columns_; }
  std::size_t rows() const { return rows_; }

  // Answers the column behind the text, which is made fit for a terminal.
  std::size_t put(std::size_t row, std::size_t column, std::string_view text, Ink = Ink::plain);
  void put_right(std::size_t row, std::string_view text, Ink = Ink::plain);  // ends at the edge
  void fill(std::size_t row, Ink);

  std::string plain() const;  // lines, without blanks at their ends and empty ones at the end
  // From the top left of a terminal, without a line feed that would scroll.
  std::string painted() const;

 private:
  struct Cell {
    std::string glyph = " ";
    Ink ink = Ink::plain;
  };
  std::size_t columns_, rows_;
  std::vector<Cell> cells_;
};

}  // namespace sentinel::cli
