#include "sentinel/error.h"

#include <cstring>

namespace sentinel {

Error::Error(const std::string& attempted, int code)
    : std::runtime_error(code == 0 ? attempted : attempted + ": " + std::strerror(code)),
      code_(code) {}

}  // namespace sentinel
