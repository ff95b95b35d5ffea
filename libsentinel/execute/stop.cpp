#include "execute/stop.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace sentinel {

void stop_training(const char* why) noexcept {
  char text[512];
  const int n =
      snprintf(text, sizeof text,
               "sentinel: training stopped: %s. No wrong number was computed; resume from "
               "the last checkpoint.\n",
               why);
  const auto length = std::min(static_cast<std::size_t>(std::max(n, 0)), sizeof text - 1);
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text, length);
  _exit(125);
}

}  // namespace sentinel
