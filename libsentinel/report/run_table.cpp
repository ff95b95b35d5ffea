#include "report/run_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "base/units.h"
#include "report/text.h"

namespace sentinel {
namespace {

std::string millis(const std::optional<double>& ms) {
  return ms ? fmt::format("{:.1f} ms", *ms) : "-";
}

std::string loss_of(const RunRow& row, const RunRow& first) {
  if (row.loss.empty()) return "-";
  return printable(row.loss) + (row.loss == first.loss ? "" : " (differs)");
}

}  // namespace

void print_run_table(std::span<const RunRow> rows, std::ostream& out) {
  if (rows.empty()) return;
  Grid grid({Align::left, Align::right, Align::right, Align::right, Align::left});
  grid.row({"", "step", "predicted", "peak memory", "final loss"});
  grid.rule();
  for (const auto& row : rows)
    grid.row({printable(row.label), millis(row.step_ms), millis(row.predicted_ms),
              row.peak_bytes ? print_bytes(*row.peak_bytes) : "-", loss_of(row, rows.front())});
  grid.print(out, 2, 100);
  const auto known = std::ranges::count_if(rows, [](auto& row) { return !row.loss.empty(); });
  if (known < 2 || known < static_cast<std::ptrdiff_t>(rows.size())) return;
  const bool same =
      std::ranges::all_of(rows, [&](auto& row) { return row.loss == rows.front().loss; });
  out << (same ? "  The final losses are equal.\n" : "  The final losses are NOT equal.\n");
}

}  // namespace sentinel
