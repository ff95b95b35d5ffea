// Joins an Error's text with the system's words for its error number.
#include "sentinel/error.h"

#include <cstring>

#include "base/text.h"

namespace sentinel {

Error::Error(const std::string& attempted, int code)
    : std::runtime_error(code == 0 ? printable(attempted)
                                   : printable(attempted) + ": " + std::strerror(code)),
      code_(code) {}

}  // namespace sentinel
