#include "report/json.h"

#include <fmt/format.h>

#include <ostream>

namespace sentinel {
namespace {
constexpr auto replace = Json::error_handler_t::replace;
}

std::string compact(const Json& value) { return value.dump(-1, ' ', false, replace); }

void write_json(const Json& value, std::ostream& out) {
  out << value.dump(1, ' ', false, replace) << '\n';
}

std::string script_safe(const Json& value) {
  std::string safe;
  for (const char c : value.dump(-1, ' ', true, replace))
    // Outside of strings JSON has none of the three, so an escape is right wherever one occurs.
    if (c == '<' || c == '>' || c == '&')
      safe += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      safe += c;
  return safe;
}

}  // namespace sentinel
