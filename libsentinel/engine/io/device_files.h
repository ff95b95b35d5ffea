// Files that a device reads and writes without the host's memory between (GPUDirect Storage).
#pragma once

#include <cstddef>
#include <cstdint>

namespace sentinel::gpu {

// Thread-safe. Both wait for the transfer, whose ends lie on pages, and return what it moved:
// bytes, maybe fewer than asked, or a negative errno, or one of the library's own (kOwnErrors).
class DeviceFiles {
 public:
  static constexpr int kOwnErrors = 5000;  // and all above
  virtual ~DeviceFiles() = default;
  // `file`: of the descriptors that this was made for.
  virtual std::int64_t read(std::size_t file, void* device, std::uint64_t bytes,
                            std::uint64_t offset) noexcept = 0;
  virtual std::int64_t write(std::size_t file, const void* device, std::uint64_t bytes,
                             std::uint64_t offset) noexcept = 0;
};

}  // namespace sentinel::gpu
