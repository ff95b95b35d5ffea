// Puts any exception that ends a command into words for people.
#include "base/failure.h"

#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <typeinfo>

#include "base/text.h"
#include "sentinel/error.h"

namespace sentinel {

std::string in_words(const std::exception& failure) {
  if (dynamic_cast<const Error*>(&failure)) return failure.what();
  if (dynamic_cast<const std::bad_alloc*>(&failure))
    return "there is not enough memory for this; free some, or raise the limit that is set on it";
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&failure))
    return Error("cannot use " + file->path1().string(), file->code().value()).what();
  return fmt::format(
      "this failed in a way that nobody foresaw ({}): please report it, with the command and its "
      "file",
      typeid(failure).name());
}

}  // namespace sentinel
