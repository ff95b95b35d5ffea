// The tensors and the layers as tables: a column is described once, for text, JSON and CSV.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/text/json.h"
#include "report/text/renderers.h"
#include "report/text/text.h"

namespace sentinel {

// `value` is what machines read; `shown` turns it into what people read (null: as it is).
struct Column {
  std::string_view name;      // in JSON and CSV
  std::string_view headline;  // in text; empty: text leaves the column out
  Align align;
  Json (*value)(const StepView&, std::size_t row);
  std::string (*shown)(const Json& value);
};

struct Table {
  std::string_view format;  // "sentinel-tensors"
  std::vector<Column> columns;
  std::vector<std::size_t> rows;  // indices of tensors or layers, in order
};

Table tensor_table(const StepView& step, SortKey sort);
Table layer_table(const StepView& step, SortKey sort);

void table_text(const Table& table, const Scene& scene, std::ostream& out);
void table_json(const Table& table, const Scene& scene, std::ostream& out);
void table_csv(const Table& table, const Scene& scene, std::ostream& out);

}  // namespace sentinel
