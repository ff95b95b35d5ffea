// Writes families and labels.
#include "base/exposition.h"

namespace sentinel {

std::string label_of(std::string_view name, std::string_view value) {
  std::string text = fmt::format("{}=\"", name);
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    c == '\n' ? text += "\\n" : text += c;
  }
  return text + '"';
}

void Exposition::family(const char* name, const char* type, const char* help) {
  name_ = name;
  fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

}  // namespace sentinel
