// Block characters show eighths of a row or a column; ASCII shows whole ones.
#include "top/graph.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/units.h"
#include "report/text/text.h"

namespace sentinel::cli {
namespace {

constexpr std::array<const char*, 9> kUp{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<const char*, 9> kRight{" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
constexpr double kLeastSeen = 0.01;  // of the whole, of a small column

std::size_t eighths(double share, std::size_t cells) {
  const auto all = static_cast<double>(8 * cells);
  return static_cast<std::size_t>(std::clamp(std::round(share * all), 0.0, all));
}

// The part of cell `i` that `all` eighths fill.
std::size_t within(std::size_t all, std::size_t i) {
  return all <= 8 * i ? 0 : std::min<std::size_t>(8, all - 8 * i);
}

// The largest value of the points that column `i` of `columns` stands for.
StatusPoint point_at(std::span<const StatusPoint> points, std::size_t i, std::size_t columns) {
  const auto first = i * points.size() / columns;
  const auto last = std::max(first + 1, (i + 1) * points.size() / columns);
  StatusPoint most{};
  for (auto p = first; p < last && p < points.size(); ++p)
    most = {std::max(most.needed_bytes, points[p].needed_bytes),
            std::max(most.held_bytes, points[p].held_bytes)};
  return most;
}

}  // namespace

void draw_bar(Canvas& canvas, const Box& box, double value, double mark, double whole,
              bool blocks) {
  const auto filled = eighths(whole > 0 ? value / whole : 0, box.columns);
  for (std::size_t i = 0; i < box.columns; ++i) {
    const auto part = within(filled, i);
    const bool empty = part == 0;
    const char* glyph = blocks ? (empty ? "░" : kRight[part]) : part >= 4 ? "#" : ".";
    canvas.put(box.row, box.column + i, glyph, empty ? Ink::needed : Ink::held);
  }
  if (whole <= 0 || mark <= 0 || mark > whole) return;
  const auto at = static_cast<std::size_t>(mark / whole * static_cast<double>(box.columns));
  canvas.put(box.row, box.column + std::min(at, box.columns - 1), "|", Ink::limit);
}

void draw_columns(Canvas& canvas, const Box& box, std::span<const double> values, double most,
                  Ink ink, bool blocks) {
  const auto shown = values.last(std::min(values.size(), box.columns));
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const auto share = most > 0 ? shown[i] / most : 0;
    const bool seen = share >= kLeastSeen;
    const auto part = seen ? std::max<std::size_t>(eighths(share, 1), 1) : 0;
    const char* glyph = blocks ? kUp[part] : part > 4 ? "#" : part > 1 ? "+" : seen ? "." : " ";
    canvas.put(box.row, box.column + i, glyph, ink);
  }
}

void draw_memory(Canvas& canvas, const Box& box, std::span<const StatusPoint> points,
                 std::uint64_t limit_bytes, bool blocks) {
  if (points.empty() || box.columns <= kAxisColumns + 1 || box.rows == 0) return;
  std::uint64_t most = limit_bytes;
  for (const auto& point : points) most = std::max(most, point.needed_bytes);
  if (most == 0) return;
  const auto columns = box.columns - kAxisColumns;
  const auto share = [&](std::uint64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(most);
  };
  const auto rows = static_cast<double>(box.rows);
  const auto limit_row = limit_bytes == 0
                             ? box.rows
                             : static_cast<std::size_t>(std::clamp(
                                   rows - std::ceil(share(limit_bytes) * rows), 0.0, rows - 1));
  for (std::size_t i = 0; i < columns; ++i) {
    const auto point = point_at(points, i, columns);
    const auto needed = eighths(share(point.needed_bytes), box.rows),
               held = eighths(share(std::min(point.held_bytes, point.needed_bytes)), box.rows);
    for (std::size_t r = 0; r < box.rows; ++r) {
      const auto height = box.rows - 1 - r;
      const auto in_held = within(held, height), in_needed = within(needed, height);
      const auto column = box.column + kAxisColumns + i;
      const auto row = box.row + r;
      if (in_held > (blocks ? 0u : 3u))
        canvas.put(row, column, blocks ? kUp[in_held] : "#", Ink::held);
      else if (r == limit_row)
        canvas.put(row, column, blocks ? "─" : "-", Ink::limit);
      else if (in_needed > 3)
        canvas.put(row, column, blocks ? "░" : ":", Ink::needed);
    }
  }
  canvas.put(box.row, box.column, lead(print_bytes(most), kAxisColumns - 1), Ink::dim);
  if (limit_row != 0 && limit_row < box.rows)
    canvas.put(box.row + limit_row, box.column, lead(print_bytes(limit_bytes), kAxisColumns - 1),
               Ink::limit);
}

}  // namespace sentinel::cli
