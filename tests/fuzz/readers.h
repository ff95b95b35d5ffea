// Everything that reads files from elsewhere, behind one shape: bytes in; a value, or an Error.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sentinel::fuzz {

struct Reader {
  std::string_view name;
  void (*read)(std::string_view bytes);  // and uses what was read; throws Error and nothing else
  std::vector<std::string> (*seeds)();   // valid files
};
std::span<const Reader> readers();

}  // namespace sentinel::fuzz
