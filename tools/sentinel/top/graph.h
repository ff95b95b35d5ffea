// Bars, curves and lines of small columns, drawn with characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/status/status.h"
#include "top/canvas.h"

namespace sentinel::cli {

struct Box {
  std::size_t row = 0, column = 0, rows = 1, columns = 1;
};

// `value` of `whole`, from the left; a mark at `mark`, where that is within.
void draw_bar(Canvas&, const Box&, double value, double mark, double whole, bool blocks);

// A small column a value, one row high; the last values, where there are more than columns.
void draw_columns(Canvas&, const Box&, std::span<const double> values, double most, Ink,
                  bool blocks);

constexpr std::size_t kAxisColumns = 10;  // of draw_memory(), before the curve

// The memory that a step needs, that of it which is held, and the limit across. The first columns
// have the axis' figures.
void draw_memory(Canvas&, const Box&, std::span<const StatusPoint>, std::uint64_t limit_bytes,
                 bool blocks);

}  // namespace sentinel::cli
