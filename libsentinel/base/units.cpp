// Parses and prints sizes, budgets, times and percentages.
#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "sentinel/error.h"

namespace sentinel {
namespace {

// Splits "1.5GiB" into 1.5 and "GiB"; false where no number leads.
bool leading_number(std::string_view text, double& value, std::string_view& rest) {
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || !std::isfinite(value) || value < 0) return false;
  rest = text.substr(static_cast<std::size_t>(end - text.data()));
  return true;
}

int binary_exponent(std::string_view suffix) {
  if (suffix.empty() || suffix == "B" || suffix == "b") return 0;
  constexpr std::string_view letters = "kmgt";
  const auto at =
      letters.find(static_cast<char>(std::tolower(static_cast<unsigned char>(suffix[0]))));
  const auto rest = suffix.substr(1);
  const bool known = rest.empty() || rest == "B" || rest == "b" || rest == "iB" || rest == "ib";
  return at == std::string_view::npos || !known ? -1 : 10 * (static_cast<int>(at) + 1);
}

}  // namespace

std::uint64_t parse_bytes(std::string_view text) {
  double value = 0;
  std::string_view suffix;
  if (leading_number(text, value, suffix)) {
    const int exponent = binary_exponent(suffix);
    const double bytes = std::ldexp(value, exponent < 0 ? 0 : exponent);
    if (exponent >= 0 && bytes < 0x1p63) return static_cast<std::uint64_t>(bytes);
  }
  throw Error(fmt::format("\"{}\" is not a size; write for example 512M, 1.5G or 4096", text));
}

Budget parse_budget(std::string_view text) {
  if (!text.ends_with('%')) {
    const auto bytes = parse_bytes(text);
    if (bytes == 0) throw Error("a budget of 0 bytes leaves no fast memory at all");
    return {.bytes = bytes};
  }
  double value = 0;
  std::string_view rest;
  if (!leading_number(text, value, rest) || rest != "%" || value <= 0 || value > 100)
    throw Error(fmt::format("\"{}\" is not a share between 0% and 100%", text));
  return {.percent = value};
}

std::string print_bytes(std::uint64_t bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < units.size()) value /= 1024, ++unit;
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, units[unit]);
}

std::string print_us(double us) {
  if (us < 999.5) return fmt::format("{:.3g} µs", us);
  if (us < 999.5e3) return fmt::format("{:.3g} ms", us / 1e3);
  return fmt::format("{:.3g} s", us / 1e6);
}

std::string print_percent(double ratio) { return fmt::format("{:.3g} %", 100 * ratio); }

}  // namespace sentinel
