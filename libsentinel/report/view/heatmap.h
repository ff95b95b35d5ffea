// The heatmap as a matrix of few enough rows and columns to be shown: tensors over layers.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "report/view/step_view.h"

namespace sentinel {

inline constexpr double absent = -1;  // a cell of a tensor that is not alive; 0: not accessed

struct HeatRow {
  std::vector<std::size_t> tensors;  // merged into this row, the biggest first
  std::uint64_t bytes = 0;
  std::vector<double> cells;  // openings per page; of several layers the hottest
};

struct Heatmap {
  std::size_t layers_per_column = 1;
  std::vector<Phase> phases;        // one a column
  std::vector<std::uint64_t> live;  // peak bytes, one a column
  std::vector<HeatRow> rows;        // by first layer, then by lifetime
};

inline constexpr auto unfolded = std::numeric_limits<std::size_t>::max();

// More layers than `columns` share columns evenly. Of more tensors than `rows`, those that live
// over the same columns are merged (over ever coarser columns until they fit); the rows then
// left go to the biggest tensors, one each.
Heatmap heatmap_of(const StepView& step, std::size_t rows, std::size_t columns);

std::string row_label(const StepView& step, const HeatRow& row);

}  // namespace sentinel
