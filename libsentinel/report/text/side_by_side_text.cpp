// Prints profiles beside one another for a terminal, a column each, and as JSON.
#include <algorithm>
#include <ostream>

#include "report/text/json.h"
#include "report/text/text.h"
#include "report/view/side_by_side.h"

namespace sentinel {
namespace {

// What all names begin and end with says nothing of one.
std::vector<std::string> headings(const std::vector<std::string>& files) {
  const auto& first = files.front();
  std::size_t head = first.size(), tail = first.size();
  for (const auto& file : files) {
    const auto from_head = std::ranges::mismatch(first, file).in1 - first.begin();
    head = std::min(head, static_cast<std::size_t>(from_head));
    const auto from_tail =
        std::mismatch(first.rbegin(), first.rend(), file.rbegin(), file.rend()).first;
    tail = std::min(tail, static_cast<std::size_t>(from_tail - first.rbegin()));
  }
  const auto at = first.substr(0, head).find_last_of("/.");
  head = at == std::string::npos ? 0 : at + 1;
  const auto dot = first.find('.', first.size() - tail);
  tail = dot == std::string::npos ? 0 : first.size() - dot;
  std::vector<std::string> names;
  for (const auto& file : files)
    names.push_back(head + tail < file.size()
                        ? printable(file.substr(head, file.size() - tail - head))
                        : printable(file));
  return names;
}

}  // namespace

void side_by_side_text(const SideBySide& all, const RenderStyle& style, std::ostream& out) {
  const auto width = static_cast<std::size_t>(std::max(style.width, 60));
  std::vector<Align> columns(all.files.size() + 1, Align::right);
  columns.front() = Align::left;
  Grid grid(std::move(columns));
  auto row = headings(all.files);
  row.insert(row.begin(), "");
  grid.row(row);
  for (const auto& figure : all.figures) {
    row.assign(1, figure.label);
    for (const auto value : figure.values) row.push_back(print(figure.unit, value));
    grid.row(row);
  }
  grid.print(out, 2, width);
  if (all.facts.empty()) return;
  out << '\n' << bold("Facts that differ", style.colour) << '\n';
  for (const auto& fact : all.facts) {
    out << "  " << fact.label << '\n';
    for (std::size_t i = 0; i < all.files.size(); ++i) {
      const auto value = fact.values[i].empty() ? "-" : printable(fact.values[i]);
      out << "    " << clip(printable(all.files[i]) + "  " + value, width - 4) << '\n';
    }
  }
}

void side_by_side_json(const SideBySide& all, std::ostream& out) {
  Json facts = Json::array(), figures = Json::array();
  constexpr const char* units[] = {"us", "bytes", "count"};
  for (const auto& fact : all.facts)
    facts.push_back({{"label", fact.label}, {"values", fact.values}});
  for (const auto& figure : all.figures)
    figures.push_back({{"label", figure.label},
                       {"unit", units[static_cast<int>(figure.unit)]},
                       {"values", figure.values}});
  write_json({{"format", "sentinel-side-by-side"},
              {"version", 1},
              {"files", all.files},
              {"facts", facts},
              {"figures", figures}},
             out);
}

}  // namespace sentinel
