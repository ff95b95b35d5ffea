// Page faults that a GPU takes in managed memory, as its driver tells them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sentinel::gpu {

struct PageFault {
  std::uintptr_t address = 0;
  bool write = false;
};

// Thread-safe.
class PageFaults {
 public:
  virtual ~PageFaults() = default;
  // Appends those of all that has been computed until now and that were not taken yet, as far as
  // the driver has told them. Answers how many it could not keep. Throws Error.
  virtual std::uint64_t take(std::vector<PageFault>& out) = 0;
};

// NVIDIA's CUPTI, loaded now; the driver is open. A process has one of these at a time, and no
// other user of CUPTI's activity records beside it (PyTorch's profiler is one). Throws Error that
// says what is missing or not permitted.
bool cupti_is_here(const std::string& library);
std::unique_ptr<PageFaults> open_cupti(const std::string& library, int device);

}  // namespace sentinel::gpu
