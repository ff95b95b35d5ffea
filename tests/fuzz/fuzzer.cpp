// libFuzzer's target: the reader that SENTINEL_READER names. An exception that is no Error leaves
// this function, and so ends the process: it is a finding, as a crash is.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <typeinfo>

#include "fuzz/readers.h"
#include "sentinel/error.h"

namespace sentinel::fuzz {
namespace {

const Reader& chosen() {
  const char* name = std::getenv("SENTINEL_READER");
  for (const auto& reader : readers())
    if (name != nullptr && reader.name == name) return reader;
  std::fprintf(stderr, "SENTINEL_READER names none of the readers\n");
  std::exit(2);
}

}  // namespace
}  // namespace sentinel::fuzz

extern "C" __attribute__((visibility("default"))) int LLVMFuzzerTestOneInput(
    const unsigned char* bytes, std::size_t size) {
  static const auto& reader = sentinel::fuzz::chosen();
  try {
    reader.read({reinterpret_cast<const char*>(bytes), size});
  } catch (const sentinel::Error& error) {
    if (*error.what() == '\0') std::abort();
  } catch (const std::exception& other) {
    std::fprintf(stderr, "ERROR: a bare message of a library: %s (%s)\n", other.what(),
                 typeid(other).name());
    std::abort();
  }
  return 0;
}
