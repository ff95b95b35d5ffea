// Writes the page of a difference: its figures as tiles, and a table each of what has changed.
#include "report/view/difference.h"

#include <fmt/format.h>

#include <cmath>
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

std::string printed(Unit unit, double value) {
  return unit == Unit::count ? grouped(static_cast<std::uint64_t>(value)) : print(unit, value);
}

// With a minus sign, as the page's script writes it.
std::string changed(const FigurePair& figure) {
  auto text = print_change(figure);
  if (figure.unit == Unit::count && !text.empty())
    text =
        text.front() + grouped(static_cast<std::uint64_t>(std::abs(figure.after - figure.before)));
  if (text.starts_with('-')) text.replace(0, 1, "−");
  return text;
}

Json figures_of(const DifferenceScene& scene) {
  const auto& difference = scene.difference;
  Json facts = Json::array(), figures = Json::array();
  for (const auto& fact : difference.facts) facts.push_back({fact.label, fact.before, fact.after});
  for (const auto& figure : difference.figures)
    figures.push_back({{"label", figure.label},
                       {"before", printed(figure.unit, figure.before)},
                       {"after", printed(figure.unit, figure.after)},
                       {"change", changed(figure)},
                       {"up", figure.after > figure.before}});
  return {{"before", scene.before},
          {"after", scene.after},
          {"verdict", difference.verdict},
          {"counted", difference.counted},
          {"comparable", difference.comparable},
          {"note", difference.note()},
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
