// Describes the columns of the layers' table.
#include <algorithm>
#include <numeric>

#include "base/units.h"
#include "report/text/tables.h"

namespace sentinel {
namespace {

std::string bytes_shown(const Json& value) { return print_bytes(value.get<std::uint64_t>()); }
std::string us_shown(const Json& value) { return print_us(value.get<double>()); }

const std::vector<Column>& columns() {
  using S = const StepView&;
  using R = std::size_t;
  static const std::vector<Column> all{
      {"name", "name", Align::left, [](S s, R r) -> Json { return layer_label(s, LayerId(r)); },
       nullptr},
      {"layer", "layer", Align::right, [](S, R r) -> Json { return r; }, nullptr},
      {"phase", "phase", Align::left, [](S s, R r) -> Json { return name_of(s.layers[r].phase); },
       nullptr},
      {"ops", "ops", Align::right, [](S s, R r) -> Json { return s.totals[r].ops; }, nullptr},
      {"us", "time", Align::right, [](S s, R r) -> Json { return s.totals[r].us; }, us_shown},
      {"peak_live_bytes", "peak live", Align::right,
       [](S s, R r) -> Json { return s.totals[r].live_bytes; }, bytes_shown},
      {"tensors", "tensors", Align::right, [](S s, R r) -> Json { return s.totals[r].tensors; },
       nullptr},
      {"touched_bytes", "touched", Align::right,
       [](S s, R r) -> Json { return s.totals[r].touched_bytes; }, bytes_shown},
      {"reads", "reads", Align::right, [](S s, R r) -> Json { return s.totals[r].reads; }, nullptr},
      {"writes", "writes", Align::right, [](S s, R r) -> Json { return s.totals[r].writes; },
       nullptr}};
  return all;
}

}  // namespace

// Layers have no hotness or lifetime of their own: hotness orders by openings, bytes by peak.
Table layer_table(const StepView& step, SortKey sort) {
  Table table{.format = "sentinel-layers", .columns = columns()};
  table.rows.resize(step.layers.size());
  std::iota(table.rows.begin(), table.rows.end(), 0);
  const auto descending = [&](auto&& key) {
    std::ranges::stable_sort(table.rows, std::greater{}, key);
  };
  if (sort == SortKey::hotness)
    descending([&](auto l) { return step.totals[l].reads + step.totals[l].writes; });
  if (sort == SortKey::bytes) descending([&](auto l) { return step.totals[l].live_bytes; });
  return table;
}

void layers_text(const Scene& scene, std::ostream& out) {
  table_text(layer_table(scene.step, scene.options.sort), scene, out);
}
void layers_json(const Scene& scene, std::ostream& out) {
  table_json(layer_table(scene.step, scene.options.sort), scene, out);
}
void layers_csv(const Scene& scene, std::ostream& out) {
  table_csv(layer_table(scene.step, scene.options.sort), scene, out);
}

}  // namespace sentinel
