// JSON as the reports write it: key order as given, broken UTF-8 in names replaced, never thrown.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>

namespace sentinel {

using Json = nlohmann::ordered_json;

std::string compact(const Json& value);                 // one line
void write_json(const Json& value, std::ostream& out);  // indented, with a final newline

// One line that may stand inside a <script> element: ASCII only, without < > and &.
std::string script_safe(const Json& value);

}  // namespace sentinel
