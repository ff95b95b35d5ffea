// What of capture and execution this process may use, and where not, why and what to do about it.
// Shown by `sentinel doctor`. Probing (touches the OS) and judging (pure) are apart, so that every
// refusal can be tested without being refused.
#pragma once

#include <string>
#include <vector>

#include "capture/userfault/uffd_open.h"

namespace sentinel {

struct CaptureMechanism {
  std::string name;  // "userfaultfd", "page counting", "frame moving" …
  bool available = false;
  std::string reason, remedy;  // empty where available
};

struct CaptureFacts {
  UffdProbe userfaultfd;
  bool x86_64 = true;        // exact counting with small windows steps single instructions
  bool proc_mounted = true;  // and asks /proc where a thread waits
};

CaptureFacts probe_capture();
std::vector<CaptureMechanism> judge_capture(const CaptureFacts&);

}  // namespace sentinel
