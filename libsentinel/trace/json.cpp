// Refuses JSON that is too deep, and puts a parser's fault into harmless words.
#include "trace/json.h"

#include <fmt/format.h>

#include <algorithm>

#include "sentinel/error.h"

namespace sentinel {

Error too_deep() {
  return Error(fmt::format("arrays or objects lie in one another more than {} deep", kDeepestJson));
}

void require_shallow_json(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepestJson) throw too_deep();
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

std::string json_fault(const nlohmann::json::exception& error, std::string_view text) {
  constexpr int kNumberTooLarge = 406, kFieldMissing = 403;
  if (const auto* parsing = dynamic_cast<const nlohmann::json::parse_error*>(&error)) {
    const auto before = text.substr(0, std::min<std::size_t>(parsing->byte, text.size()));
    const auto lines = std::ranges::count(before, '\n');
    if (text.empty()) return fmt::format("character {} is not in its place", parsing->byte);
    return fmt::format("line {}, character {} is not in its place", lines + 1,
                       parsing->byte - (before.rfind('\n') + 1));
  }
  if (error.id == kNumberTooLarge) return "a number is too large";
  if (error.id == kFieldMissing) return "a field is missing";
  return "a value is not of the type that its field has";
}

}  // namespace sentinel
