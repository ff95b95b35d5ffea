// Writes JSON compactly, and escapes it for use within a script element.
#include "report/text/json.h"

#include <fmt/format.h>

#include <ostream>

#include "trace/json.h"

namespace sentinel {
std::string compact(const Json& value) { return json_text(value); }

void write_json(const Json& value, std::ostream& out) { out << json_text(value, 1) << '\n'; }

std::string script_safe(const Json& value) {
  std::string safe;
  for (const char c : value.dump(-1, ' ', true, Json::error_handler_t::replace))
    // Outside of strings JSON has none of the three, so an escape is right wherever one occurs.
    if (c == '<' || c == '>' || c == '&')
      safe += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      safe += c;
  return safe;
}

}  // namespace sentinel
