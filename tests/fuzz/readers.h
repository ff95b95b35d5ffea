// Everything that reads bytes from elsewhere, behind one shape: bytes in; a value, or an Error. The
// unit test damages valid files (mutations_test.cpp), libFuzzer goes on from there (run.sh).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sentinel::fuzz {

struct Reader {
  std::string_view name;
  // Reads, and uses what was read; throws Error and nothing else.
  void (*read)(std::string_view bytes);
  std::vector<std::string> (*seeds)();  // valid files, made by the project's own writers
  std::string_view sources;             // that parse, with blanks between: their coverage is told
  bool tolerant = false;                // passes over what it does not know, and refuses little
};
std::span<const Reader> readers();

}  // namespace sentinel::fuzz
