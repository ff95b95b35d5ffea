// Rows of the table of options (options/table.h) for verbs that start no training: the same name,
// value and help, with a target of the verb's own.
#pragma once

#include <string>
#include <string_view>

#include "cli/form.h"

namespace sentinel::cli {

// `absent`: what the verb does without the option. `value`: where the verb takes another one.
Row table_row(std::string_view variable, Target into, std::string_view absent = "",
              std::string value = "");

}  // namespace sentinel::cli
