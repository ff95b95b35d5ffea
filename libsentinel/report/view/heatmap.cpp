// Sorts tensors into rows, merges the small ones, and folds layers into few columns.
#include "report/view/heatmap.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <ranges>

#include "base/text.h"

namespace sentinel {
namespace {

std::size_t first_column(const StepView& step, std::size_t t, std::size_t fold) {
  return step.lifetimes[t].first_layer.index() / fold;
}
std::size_t last_column(const StepView& step, std::size_t t, std::size_t fold) {
  return step.lifetimes[t].last_layer.index() / fold;
}

using Groups = std::map<std::pair<std::size_t, std::size_t>, std::vector<std::size_t>>;

Groups by_lifetime(const StepView& step, const std::vector<std::size_t>& tensors,
                   std::size_t fold) {
  Groups groups;
  for (const auto t : tensors)
    groups[{first_column(step, t, fold), last_column(step, t, fold)}].push_back(t);
  return groups;
}

std::vector<std::size_t> biggest_first(const StepView& step) {
  std::vector<std::size_t> order(step.profile.tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater{},
                           [&](std::size_t t) { return step.profile.tensors[t].bytes; });
  return order;
}

// Sets of tensors, one a row, at most `rows` of them.
std::vector<std::vector<std::size_t>> merged(const StepView& step, std::size_t rows,
                                             std::size_t fold) {
  auto tensors = biggest_first(step);
  std::vector<std::vector<std::size_t>> sets;
  if (tensors.size() <= rows) {
    for (const auto t : tensors) sets.push_back({t});
    return sets;
  }
  auto groups = by_lifetime(step, tensors, fold);
  while (groups.size() > rows) groups = by_lifetime(step, tensors, fold *= 2);
  const auto alone = rows - groups.size();
  for (std::size_t i = 0; i < alone; ++i) sets.push_back({tensors[i]});
  tensors.erase(tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(alone));
  for (auto& [key, group] : by_lifetime(step, tensors, fold)) sets.push_back(std::move(group));
  return sets;
}

// Openings per page of all the row's tensors together; absent where none of them is alive.
std::vector<double> cells_of(const StepView& step, const HeatRow& row) {
  std::vector<double> cells(step.layers.size(), absent);
  double pages = 0;
  for (const auto t : row.tensors) {
    const auto& life = step.lifetimes[t];
    const auto begin = cells.begin() + static_cast<std::ptrdiff_t>(life.first_layer.index());
    std::replace(begin, begin + life.layers(), absent, 0.0);
    const auto own = static_cast<double>(step.pages(TensorId(t)));
    pages += own;
    for (const auto& cell : step.cells[t]) {
      auto& sum = cells[cell.layer.index()];
      sum = std::max(sum, 0.0) + cell.hotness * own;
    }
  }
  for (auto& cell : cells)
    if (cell > 0) cell /= pages;
  return cells;
}

std::vector<double> folded(const std::vector<double>& cells, std::size_t fold) {
  std::vector<double> columns((cells.size() + fold - 1) / fold, absent);
  for (std::size_t i = 0; i < cells.size(); ++i)
    columns[i / fold] = std::max(columns[i / fold], cells[i]);
  return columns;
}

void fill_columns(const StepView& step, Heatmap& map) {
  const auto fold = map.layers_per_column;
  map.phases.resize((step.layers.size() + fold - 1) / fold);
  map.live.resize(map.phases.size());
  for (std::size_t l = step.layers.size(); l-- > 0;) {
    map.phases[l / fold] = step.layers[l].phase;
    map.live[l / fold] = std::max(map.live[l / fold], step.totals[l].live_bytes);
  }
}

HeatRow row_of(const StepView& step, std::vector<std::size_t> tensors, std::size_t fold) {
  HeatRow row{.tensors = std::move(tensors)};
  for (const auto t : row.tensors) row.bytes += step.profile.tensors[t].bytes;
  row.cells = folded(cells_of(step, row), fold);
  return row;
}

}  // namespace

Heatmap heatmap_of(const StepView& step, std::size_t rows, std::size_t columns) {
  Heatmap map;
  const auto layers = step.layers.size();
  if (layers == 0 || step.profile.ops.empty()) return map;
  rows = std::max<std::size_t>(1, rows);
  columns = std::max<std::size_t>(1, columns);
  const auto fold = columns >= layers ? 1 : (layers + columns - 1) / columns;
  map.layers_per_column = fold;
  fill_columns(step, map);
  std::vector<std::size_t> rank(step.profile.tensors.size());
  const auto order = by_first_use(step);
  for (std::size_t i = 0; i < order.size(); ++i) rank[order[i]] = i;
  auto sets = merged(step, rows, fold);
  std::ranges::sort(sets, {}, [&](const auto& set) {
    auto ranks = set | std::views::transform([&](std::size_t t) { return rank[t]; });
    return *std::ranges::min_element(ranks);
  });
  for (auto& set : sets) map.rows.push_back(row_of(step, std::move(set), fold));
  return map;
}

std::string row_label(const StepView& step, const HeatRow& row) {
  const auto& first = step.profile.tensors[row.tensors.front()].name;
  if (row.tensors.size() == 1) return printable(first);
  auto common = first;
  for (const auto t : row.tensors) {
    const auto& name = step.profile.tensors[t].name;
    const auto end = std::ranges::mismatch(common, name).in1;
    common.erase(end, common.end());
  }
  return fmt::format("{} tensors{}", row.tensors.size(),
                     common.size() < 3 ? "" : " " + printable(common) + "*");
}

}  // namespace sentinel
