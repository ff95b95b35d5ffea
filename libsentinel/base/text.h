// Text that comes from elsewhere (a file, a framework, a command line), made fit for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sentinel {

constexpr std::size_t kLongestShown = 2000;  // bytes of one text

// `text` so that it can neither steer a terminal nor pretend to be other lines: control characters
// (C0, DEL, C1), bidirectional overrides, line separators and broken UTF-8 become "\x1b", "\u202e".
// What is longer than `most` bytes loses its middle. Of what it returned it changes nothing.
std::string printable(std::string_view text, std::size_t most = kLongestShown);

// The same of a JSON text, whole, in JSON's own form: a string in it means what it meant.
std::string printable_json(std::string_view json);

}  // namespace sentinel
