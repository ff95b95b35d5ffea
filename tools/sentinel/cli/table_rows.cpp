// Builds a verb's row of a form from a row of the table of options.
#include "cli/table_rows.h"

#include <utility>

#include "options/table.h"

namespace sentinel::cli {

Row table_row(std::string_view variable, Target into, std::string_view absent, std::string value) {
  const OptionRow& row = option_row(variable);
  return {.names = row.names,
          .value = value.empty() ? row.value : std::move(value),
          .meaning = help_of(row, absent),
          .into = into,
          .words = words_of(row)};
}

}  // namespace sentinel::cli
