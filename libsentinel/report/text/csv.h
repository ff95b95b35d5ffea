// Comma-separated values after RFC 4180, with two additions: a text that a spreadsheet would take
// for a formula is led by an apostrophe, and texts are printable() (base/text.h), for a terminal
// may show them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sentinel {

std::string csv_text(std::string_view text);                   // quoted where it must be
std::string csv_line(const std::vector<std::string>& fields);  // fields ready; with line end

}  // namespace sentinel
