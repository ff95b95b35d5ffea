// The whole heatmap, unfolded, for other programs.
#include <fmt/format.h>

#include <ostream>

#include "report/text/csv.h"
#include "report/text/json.h"
#include "report/text/renderers.h"
#include "report/text/tables.h"
#include "report/view/heatmap.h"
#include "report/view/provenance.h"

namespace sentinel {
namespace {

Json columns_json(const StepView& step) {
  Json columns = Json::array();
  for (std::size_t l = 0; l < step.layers.size(); ++l)
    columns.push_back({{"layer", l},
                       {"name", step.layers[l].name},
                       {"phase", name_of(step.layers[l].phase)},
                       {"us", step.totals[l].us},
                       {"peak_live_bytes", step.totals[l].live_bytes}});
  return columns;
}

Json row_json(const StepView& step, std::size_t t) {
  const auto& tensor = step.profile.tensors[t];
  const auto& life = step.lifetimes[t];
  Json cells = Json::array();
  for (const auto& cell : step.cells[t])
    cells.push_back({cell.layer.value, cell.reads, cell.writes, cell.hotness});
  return {{"tensor", t},
          {"name", tensor.name},
          {"bytes", tensor.bytes},
          {"kind", name_of(tensor.kind)},
          {"first_layer", life.first_layer.value},
          {"last_layer", life.last_layer.value},
          {"persistent", life.persistent},
          {"hotness", step.counts[t].hotness},
          {"cells", cells}};
}

std::vector<std::string> header(const StepView& step) {
  std::vector<std::string> fields{"tensor", "name", "kind", "bytes"};
  for (std::size_t l = 0; l < step.layers.size(); ++l)
    fields.push_back(csv_text(fmt::format("{} {} ({})", l, layer_label(step, LayerId(l)),
                                          name_of(step.layers[l].phase))));
  return fields;
}

}  // namespace

void heatmap_json(const Scene& scene, std::ostream& out) {
  const auto& step = scene.step;
  out << "{\"format\":\"sentinel-heatmap\",\"version\":1,\"model\":"
      << compact(step.profile.meta.model) << ",\"complete\":" << compact(step.profile.meta.complete)
      << ",\"counts\":" << compact(fidelity(step))
      << ",\"cell\":[\"layer\",\"reads\",\"writes\",\"hotness\"],\"columns\":"
      << compact(columns_json(step)) << ",\"live_bytes\":" << compact(step.live) << ",\"rows\":[";
  bool first = true;
  for (const auto t : by_first_use(step)) {
    out << (first ? "\n" : ",\n") << compact(row_json(step, t));
    first = false;
  }
  out << "\n]}\n";
}

// A cell is empty where the tensor is absent, 0 where it is alive but not accessed.
void heatmap_csv(const Scene& scene, std::ostream& out) {
  const auto& step = scene.step;
  out << csv_line(header(step));
  for (const auto& row : heatmap_of(step, unfolded, unfolded).rows) {
    const auto t = row.tensors.front();
    const auto& tensor = step.profile.tensors[t];
    std::vector<std::string> fields{fmt::format("{}", t), csv_text(tensor.name),
                                    std::string(name_of(tensor.kind)),
                                    fmt::format("{}", tensor.bytes)};
    for (const auto cell : row.cells) fields.push_back(cell < 0 ? "" : fmt::format("{}", cell));
    out << csv_line(fields);
  }
}

}  // namespace sentinel
