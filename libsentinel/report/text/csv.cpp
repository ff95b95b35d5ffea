// Quotes fields of CSV, and disarms texts that a spreadsheet would compute.
#include "report/text/csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"

namespace sentinel {

namespace {

// Spreadsheets drop blanks before a formula, and take the wide forms for the signs themselves.
bool formula(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n\v\f");
  if (begin == std::string_view::npos) return false;
  constexpr std::string_view signs[] = {"=", "+", "-", "@", "＝", "＋", "－", "＠"};
  return std::ranges::any_of(signs,
                             [&](auto sign) { return text.substr(begin).starts_with(sign); });
}

}  // namespace

std::string csv_text(std::string_view text) {
  std::string field;
  if (formula(text)) field += '\'';
  field += printable(text, text.size() * 6);
  if (field.find_first_of(",;\"\t\r\n") == std::string::npos)
    return field;  // all that divide cells
  std::string quoted = "\"";
  for (const char c : field) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

std::string csv_line(const std::vector<std::string>& fields) {
  return fmt::format("{}\r\n", fmt::join(fields, ","));
}

}  // namespace sentinel
