// JSON as every reader and writer here treats it: no text of the library reaches a person, and no
// text of a file stops the writing or reaches a terminal as more than text.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/text.h"
#include "sentinel/error.h"

namespace sentinel {

// What is wrong with a text that does not parse, or a value of another type than expected. With
// `text`, all that was parsed, it says in which line.
std::string json_fault(const nlohmann::json::exception&, std::string_view text = {});

constexpr int kDeepestJson = 32;

// Throws Error where arrays or objects lie in one another deeper than that. The library's
// functions go down into a value by recursion, so that a deep one ends the process. Before each
// parse of a text from elsewhere.
void require_shallow_json(std::string_view text);
Error too_deep();  // for those that count themselves

// A field that is a whole number from 0 to `most`. Throws Error where it is none (the library would
// round a fraction, and cut a number that is too large), and the library's where it is missing.
template <class Json>
std::uint64_t whole_number(const Json& object, const char* field,
                           std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) {
  const auto& value = object.at(field);
  if (!value.is_number_unsigned() || value.template get<std::uint64_t>() > most)
    throw Error(fmt::format("\"{}\" is no whole number from 0 to {}", field, most));
  return value.template get<std::uint64_t>();
}

// `indent` -1: on one line. Broken UTF-8 is replaced, numbers that are none are null.
template <class Json>
std::string json_text(const Json& value, int indent = -1) {
  return printable_json(value.dump(indent, ' ', false, Json::error_handler_t::replace));
}

}  // namespace sentinel
