// Prints a difference for a terminal, and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "report/text/json.h"
#include "report/text/text.h"
#include "report/view/difference.h"

namespace sentinel {
namespace {

struct Titles {
  const char *title, *name, *other;  // other: the second figure; empty: there is none
  Unit unit, other_unit;
};
constexpr Titles kLayers{"Layers", "layer", "peak live", Unit::us, Unit::bytes};
constexpr Titles kOps{"Ops, by name", "op", "calls", Unit::us, Unit::count};
Titles tensors_of(const Difference& difference) {
  const char* other = !difference.comparable ? "" : difference.counted ? "accesses" : "uses";
  return {"Tensors that are new, gone, or of another size", "tensor", other, Unit::bytes,
          Unit::count};
}

std::string shown(Unit unit, const std::optional<double>& value) {
  return value ? print(unit, *value) : "-";
}

std::string both(Unit unit, const Change& change) {
  const auto before = shown(unit, change.before), after = shown(unit, change.after);
  return before == after ? after : fmt::format("{} -> {}", before, after);
}

std::size_t width_of(const DifferenceScene& scene) {
  return static_cast<std::size_t>(std::max(scene.style.width, 60));
}

void print_figures(const DifferenceScene& scene, std::ostream& out) {
  Grid grid({Align::left, Align::right, Align::right, Align::right});
  grid.row({"", "before", "after", "change"});
  for (const auto& figure : scene.difference.figures)
    grid.row({figure.label, print(figure.unit, figure.before), print(figure.unit, figure.after),
              print_change(figure)});
  grid.print(out, 2, width_of(scene));
}

void print_facts(const DifferenceScene& scene, std::ostream& out) {
  for (const auto& fact : scene.difference.facts) {
    out << "  " << fact.label << '\n';
    const auto line = [&](const char* when, const std::string& value) {
      const auto text = value.empty() ? "-" : printable(value);
      out << "    " << pad(when, 8) << clip(text, width_of(scene) - 12) << '\n';
    };
    line("before", fact.before);
    line("after", fact.after);
  }
}

void print_rows(const DifferenceScene& scene, const Titles& titles,
                const std::vector<DifferenceRow>& rows, std::ostream& out) {
  if (rows.empty()) return;
  out << '\n' << bold(titles.title, scene.style.colour) << '\n';
  Grid grid({Align::left, Align::left, Align::right, Align::right, Align::right, Align::right});
  grid.row({titles.name, "", "before", "after", "change", titles.other});
  grid.rule();
  const auto count = scene.rows == 0 ? rows.size() : std::min(scene.rows, rows.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto& row = rows[i];
    const auto other = titles.other[0] == 0 ? "" : both(titles.other_unit, row.other);
    grid.row({printable(row.name), row.detail, shown(titles.unit, row.value.before),
              shown(titles.unit, row.value.after), print_change(titles.unit, row.value), other});
  }
  grid.print(out, 2, width_of(scene));
  if (count < rows.size()) out << fmt::format("  … and {} more\n", rows.size() - count);
}

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json json_of(const std::vector<DifferenceRow>& rows, const char* value, const char* other) {
  Json list = Json::array();
  const auto pair = [](const Change& change) {
    return Json{{"before", json_of(change.before)}, {"after", json_of(change.after)}};
  };
  for (const auto& row : rows)
    list.push_back({{"name", row.name},
                    {"of", row.detail},
                    {value, pair(row.value)},
                    {other, pair(row.other)}});
  return list;
}

}  // namespace

void difference_text(const DifferenceScene& scene, std::ostream& out) {
  const auto& difference = scene.difference;
  out << "  before  " << printable(scene.before) << "\n  after   " << printable(scene.after)
      << "\n\n";
  for (const auto& line : wrapped(difference.verdict, width_of(scene)))
    out << bold(line, scene.style.colour) << '\n';
  out << '\n';
  print_figures(scene, out);
  for (const auto& line : wrapped(difference.note(), width_of(scene))) out << line << '\n';
  if (!difference.facts.empty())
    out << '\n' << bold("Facts that differ", scene.style.colour) << '\n';
  print_facts(scene, out);
  print_rows(scene, tensors_of(difference), difference.tensors, out);
  print_rows(scene, kOps, difference.ops, out);
  print_rows(scene, kLayers, difference.layers, out);
}

void difference_json(const DifferenceScene& scene, std::ostream& out) {
  const auto& difference = scene.difference;
  Json facts = Json::array(), figures = Json::array();
  for (const auto& fact : difference.facts)
    facts.push_back({{"label", fact.label}, {"before", fact.before}, {"after", fact.after}});
  constexpr const char* units[] = {"us", "bytes", "count"};
  for (const auto& figure : difference.figures)
    figures.push_back({{"label", figure.label},
                       {"unit", units[static_cast<int>(figure.unit)]},
                       {"before", figure.before},
                       {"after", figure.after}});
  write_json({{"format", "sentinel-difference"},
              {"version", 1},
              {"before", scene.before},
              {"after", scene.after},
              {"same_step", difference.same_step},
              {"verdict", difference.verdict},
              {"facts", facts},
              {"figures", figures},
              {"tensors", json_of(difference.tensors, "bytes", "accesses")},
              {"ops", json_of(difference.ops, "us", "calls")},
              {"layers", json_of(difference.layers, "us", "peak_live_bytes")}},
             out);
}

}  // namespace sentinel
