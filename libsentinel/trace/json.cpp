#include "trace/json.h"

#include <fmt/format.h>

#include <algorithm>

namespace sentinel {

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
