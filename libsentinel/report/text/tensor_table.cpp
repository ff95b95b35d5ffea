// Describes the columns of the tensors' table.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/units.h"
#include "report/text/tables.h"

namespace sentinel {
namespace {

const Tensor& tensor(const StepView& step, std::size_t row) { return step.profile.tensors[row]; }

std::string bytes_shown(const Json& value) { return print_bytes(value.get<std::uint64_t>()); }
std::string hotness_shown(const Json& value) { return fmt::format("{:.4g}", value.get<double>()); }

Json lifetime(const StepView& step, std::size_t row) {
  const auto& life = step.lifetimes[row];
  if (life.persistent) return "persistent";
  return life.short_lived() ? "short" : "long";
}

Json layers_alive(const StepView& step, std::size_t row) {
  const auto& life = step.lifetimes[row];
  return life.layers() == 1 ? fmt::format("{}", life.first_layer.value)
                            : fmt::format("{}-{}", life.first_layer.value, life.last_layer.value);
}

const std::vector<Column>& columns() {
  using S = const StepView&;
  using R = std::size_t;
  static const std::vector<Column> all{
      {"name", "tensor", Align::left, [](S s, R r) -> Json { return tensor(s, r).name; }, nullptr},
      {"tensor", "", Align::right, [](S, R r) -> Json { return r; }, nullptr},
      {"kind", "kind", Align::left, [](S s, R r) -> Json { return name_of(tensor(s, r).kind); },
       nullptr},
      {"bytes", "bytes", Align::right, [](S s, R r) -> Json { return tensor(s, r).bytes; },
       bytes_shown},
      {"lifetime", "lifetime", Align::left, lifetime, nullptr},
      {"layers", "layers", Align::right, layers_alive, nullptr},
      {"first_layer", "", Align::right,
       [](S s, R r) -> Json { return s.lifetimes[r].first_layer.value; }, nullptr},
      {"last_layer", "", Align::right,
       [](S s, R r) -> Json { return s.lifetimes[r].last_layer.value; }, nullptr},
      {"reads", "reads", Align::right, [](S s, R r) -> Json { return s.counts[r].reads; }, nullptr},
      {"writes", "writes", Align::right, [](S s, R r) -> Json { return s.counts[r].writes; },
       nullptr},
      {"hotness", "hotness", Align::right, [](S s, R r) -> Json { return s.counts[r].hotness; },
       hotness_shown},
      {"sample_stride", "", Align::right,
       [](S s, R r) -> Json { return tensor(s, r).sample_stride; }, nullptr},
      {"foreign", "", Align::left, [](S s, R r) -> Json { return tensor(s, r).foreign; }, nullptr}};
  return all;
}

}  // namespace

Table tensor_table(const StepView& step, SortKey sort) {
  Table table{.format = "sentinel-tensors", .columns = columns(), .rows = by_first_use(step)};
  const auto descending = [&](auto&& key) {
    std::ranges::stable_sort(table.rows, std::greater{}, key);
  };
  if (sort == SortKey::hotness) descending([&](auto t) { return step.counts[t].hotness; });
  if (sort == SortKey::bytes) descending([&](auto t) { return tensor(step, t).bytes; });
  if (sort == SortKey::lifetime) descending([&](auto t) { return step.lifetimes[t].layers(); });
  return table;
}

void tensors_text(const Scene& scene, std::ostream& out) {
  table_text(tensor_table(scene.step, scene.options.sort), scene, out);
}
void tensors_json(const Scene& scene, std::ostream& out) {
  table_json(tensor_table(scene.step, scene.options.sort), scene, out);
}
void tensors_csv(const Scene& scene, std::ostream& out) {
  table_csv(tensor_table(scene.step, scene.options.sort), scene, out);
}

}  // namespace sentinel
