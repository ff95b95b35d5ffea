// Decodes UTF-8, escapes what would steer a terminal, and shortens at whole characters.
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace sentinel {
namespace {

constexpr std::string_view kCut = "…";

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Bytes of the well-formed UTF-8 sequence that `text` begins with, 0 if it begins with none.
std::size_t sequence(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = lead < 0x80    ? 1
                             : lead < 0xC2  ? 0
                             : lead < 0xE0  ? 2
                             : lead < 0xF0  ? 3
                             : lead <= 0xF4 ? 4
                                            : 0;
  if (length == 0 || length > text.size()) return 0;
  return std::all_of(text.begin() + 1, text.begin() + length, continues) ? length : 0;
}

std::uint32_t code_point(std::string_view one) {
  if (one.size() == 1) return static_cast<unsigned char>(one[0]);
  std::uint32_t value = static_cast<unsigned char>(one[0]) & (0x7Fu >> one.size());
  for (const char c : one.substr(1)) value = value << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
  return value;
}

// Overlong forms, surrogates and what lies beyond Unicode are broken as well.
bool encoded_well(std::uint32_t c, std::size_t length) {
  constexpr std::uint32_t least[] = {0, 0x80, 0x800, 0x10000};
  return c >= least[length - 1] && c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF);
}

// Controls, marks that turn the direction of what follows, and what ends a line.
bool steers(std::uint32_t c) {
  const auto within = [c](std::uint32_t first, std::uint32_t last) {
    return c >= first && c <= last;
  };
  return c < 0x20 || within(0x7F, 0x9F) || c == 0x061C || within(0x200E, 0x200F) ||
         within(0x2028, 0x202E) || within(0x2066, 0x2069) || c == 0xFEFF;
}

// The first character of `text`, which is not empty; `code` is nothing where it is broken.
struct Character {
  std::string_view bytes;
  std::optional<std::uint32_t> code;
};

Character first_of(std::string_view text) {
  const auto length = sequence(text);
  if (length == 0) return {text.substr(0, 1), std::nullopt};
  const auto bytes = text.substr(0, length);
  const auto code = code_point(bytes);
  return {bytes, encoded_well(code, length) ? std::optional(code) : std::nullopt};
}

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character one = first_of(text);
    if (!one.code)
      for (const char byte : one.bytes)
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    else if (steers(*one.code))
      out += *one.code < 0x100 ? fmt::format("\\x{:02x}", *one.code)
                               : fmt::format("\\u{:04x}", *one.code);
    else
      out += one.bytes;
    text.remove_prefix(one.bytes.size());
  }
  return out;
}

std::size_t whole_character(std::string_view text, std::size_t at) {
  while (at > 0 && at < text.size() && continues(text[at])) --at;
  return at;
}

}  // namespace

std::string printable(std::string_view text, std::size_t most) {
  // What is cut is never looked at: a text may be as long as a file.
  const auto half = std::max(most / 2, 2 * kCut.size()) - kCut.size();
  const auto shortened = [&](std::string_view whole, auto show) {
    return show(whole.substr(0, whole_character(whole, half))) + std::string(kCut) +
           show(whole.substr(whole_character(whole, whole.size() - half)));
  };
  auto out = text.size() <= most ? escaped(text) : shortened(text, escaped);
  if (out.size() <= most) return out;
  return shortened(out, [](std::string_view part) { return std::string(part); });
}

std::string printable_json(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  while (!json.empty()) {
    const Character one = first_of(json);
    if (one.code.value_or(0) >= 0x7F && steers(*one.code))
      out += fmt::format("\\u{:04x}", *one.code);
    else
      out += one.bytes;
    json.remove_prefix(one.bytes.size());
  }
  return out;
}

}  // namespace sentinel
