// Renders any described table as text, JSON and CSV.
#include "report/text/tables.h"

#include <fmt/format.h>

#include <ostream>

#include "report/text/csv.h"
#include "report/view/provenance.h"

namespace sentinel {
namespace {

std::string plain(const Json& value) {
  return value.is_string() ? value.get_ref<const std::string&>() : compact(value);
}

std::string shown(const Column& column, const Json& value) {
  return column.shown ? column.shown(value) : printable(plain(value));
}

std::string csv_field(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? csv_text(plain(value)) : compact(value);
}

std::vector<const Column*> in_text(const Table& table) {
  std::vector<const Column*> columns;
  for (const auto& column : table.columns)
    if (!column.headline.empty()) columns.push_back(&column);
  return columns;
}

std::size_t rows_shown(const Table& table, const Scene& scene) {
  const auto limit = scene.options.table_rows;
  return limit == 0 ? table.rows.size() : std::min(limit, table.rows.size());
}

}  // namespace

void table_text(const Table& table, const Scene& scene, std::ostream& out) {
  const auto columns = in_text(table);
  std::vector<Align> align;
  std::vector<std::string> headlines;
  for (const auto* column : columns) {
    align.push_back(column->align);
    headlines.emplace_back(column->headline);
  }
  Grid grid(align);
  grid.row(headlines);
  grid.rule();
  const auto count = rows_shown(table, scene);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::string> cells;
    for (const auto* column : columns)
      cells.push_back(shown(*column, column->value(scene.step, table.rows[i])));
    grid.row(std::move(cells));
  }
  if (const auto notice = partial_notice(scene.step); !notice.empty())
    out << bold(printable(notice), scene.style.colour) << '\n';
  grid.print(out, 0, static_cast<std::size_t>(std::max(scene.style.width, 20)));
  if (count < table.rows.size()) out << fmt::format("… and {} more\n", table.rows.size() - count);
  out << "counts: " << printable(fidelity(scene.step)) << '\n';
}

void table_json(const Table& table, const Scene& scene, std::ostream& out) {
  out << "{\"format\":" << compact(table.format)
      << ",\"version\":1,\"model\":" << compact(scene.step.profile.meta.model)
      << ",\"complete\":" << compact(scene.step.profile.meta.complete)
      << ",\"counts\":" << compact(fidelity(scene.step)) << ",\"rows\":[";
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    Json row = Json::object();
    for (const auto& column : table.columns)
      row[std::string(column.name)] = column.value(scene.step, table.rows[i]);
    out << (i ? ",\n" : "\n") << compact(row);
  }
  out << "\n]}\n";
}

void table_csv(const Table& table, const Scene& scene, std::ostream& out) {
  std::vector<std::string> fields;
  for (const auto& column : table.columns) fields.push_back(csv_text(column.name));
  out << csv_line(fields);
  for (const auto row : table.rows) {
    fields.clear();
    for (const auto& column : table.columns)
      fields.push_back(csv_field(column.value(scene.step, row)));
    out << csv_line(fields);
  }
}

}  // namespace sentinel
