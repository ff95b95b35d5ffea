// Writes the page of a difference: its figures as tiles, and a table each of what has changed.
#include "report/view/difference.h"

#include <fmt/format.h>

#include <ostream>

#include "embedded/sentinel_report_html.h"
#include "report/html/parts.h"
#include "report/text/json.h"

namespace sentinel {
namespace {

Json value_of(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json rows_of(const std::vector<DifferenceRow>& rows) {
  Json list = Json::array();
  for (const auto& row : rows)
    list.push_back({row.name, row.detail, value_of(row.value.before), value_of(row.value.after),
                    value_of(row.other.before), value_of(row.other.after)});
  return list;
}

Json figures_of(const DifferenceScene& scene) {
  const auto& difference = scene.difference;
  Json facts = Json::array(), figures = Json::array();
  for (const auto& fact : difference.facts) facts.push_back({fact.label, fact.before, fact.after});
  for (const auto& figure : difference.figures)
    figures.push_back({{"label", figure.label},
                       {"before", print(figure.unit, figure.before)},
                       {"after", print(figure.unit, figure.after)},
                       {"change", print_change(figure)},
                       {"up", figure.after > figure.before}});
  return {{"before", scene.before},
          {"after", scene.after},
          {"verdict", difference.verdict},
          {"counted", difference.counted},
          {"facts", facts},
          {"figures", figures},
          {"tensors", rows_of(difference.tensors)},
          {"ops", rows_of(difference.ops)},
          {"layers", rows_of(difference.layers)}};
}

}  // namespace

void difference_html(const DifferenceScene& scene, std::ostream& out) {
  html_open("Sentinel difference", out);
  out << embedded::difference_body_html;
  html_close(figures_of(scene), {embedded::formats_js, embedded::difference_js}, out);
}

}  // namespace sentinel
