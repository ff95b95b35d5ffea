// What stands in files: the manual page, and docs/reference/options.md. Both are made from the
// verbs and from the table of options, as the help is.
#pragma once

#include <string>

namespace sentinel::cli {

std::string manual_page();       // sentinel(1), as roff
std::string option_reference();  // of `run`, `record` and `fit`, as Markdown

}  // namespace sentinel::cli
