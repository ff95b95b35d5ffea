// Wakes a thread that waits for packets. Any thread rings; a forked child does not.
#pragma once

#include "base/descriptor.h"

namespace sentinel {

class Bell {
 public:
  Bell();  // throws Error
  ~Bell();
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;

  void ring() noexcept;
  // Waits until it rings or something comes to that socket, for so long at most. False: neither.
  bool await(int socket, int timeout_ms) noexcept;

 private:
  OurFile ears_, rope_;  // the program may close them: then waiting ends by its time alone
};

}  // namespace sentinel
